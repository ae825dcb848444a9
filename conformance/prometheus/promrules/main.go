// Command promrules checks deploy/monitoring with Prometheus' own parsers, as promtool does. promtool itself
// contains every service discovery, and takes minutes to build.
//
//	promrules rules.yaml           groups, alerts, durations, templates and expressions of a rule file
//	promrules < expressions        one PromQL expression in each line
//
// It prints every problem, and exits with 1 if there is one.
package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	problems, expressions := 0, parser.NewParser(parser.Options{})
	complain := func(what string, problem error) {
		problems++
		fmt.Printf("%s: %v\n", what, problem)
	}
	for _, file := range os.Args[1:] {
		_, found := rulefmt.ParseFile(file, false, model.UTF8Validation, expressions, slog.Default())
		for _, problem := range found {
			complain(file, problem)
		}
	}
	if len(os.Args) == 1 {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if _, problem := expressions.ParseExpr(lines.Text()); problem != nil {
				complain(lines.Text(), problem)
			}
		}
	}
	if problems > 0 {
		os.Exit(1)
	}
}
