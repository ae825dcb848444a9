// Command promrules checks deploy/monitoring with Prometheus' own packages, as promtool does. promtool itself
// contains every service discovery, and takes minutes to build.
//
//	promrules rules.yaml              groups, alerts, durations, templates and expressions of a rule file
//	promrules < expressions           one PromQL expression in each line
//	promrules -fire 1h rules.yaml     the alerts that fire after an hour, each with its summary, for the series
//	    < series                      in the standard input ("load 1m", then one series in each line)
//
// It prints every problem, and exits with 1 if there is one.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const interval = time.Minute

var problems = 0

func complain(what string, problem error) {
	problems++
	fmt.Printf("%s: %v\n", what, problem)
}

func main() {
	after := flag.Duration("fire", 0, "evaluate the rules for so long")
	flag.Parse()
	switch expressions := parser.NewParser(parser.Options{}); {
	case *after > 0:
		if problem := fire(*after, expressions, flag.Args()); problem != nil {
			complain("firing", problem)
		}
	case flag.NArg() > 0:
		for _, file := range flag.Args() {
			_, found := rulefmt.ParseFile(file, false, model.UTF8Validation, expressions, slog.Default())
			for _, problem := range found {
				complain(file, problem)
			}
		}
	default:
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

// fire evaluates the rules every minute and prints the alerts that fire at the end.
func fire(after time.Duration, expressions parser.Parser, files []string) error {
	series, problem := io.ReadAll(os.Stdin)
	if problem != nil {
		return problem
	}
	loader, problem := promqltest.NewLazyLoader(string(series), promqltest.LazyLoaderOpts{})
	if problem != nil {
		return problem
	}
	defer loader.Close()
	manager := rules.NewManager(&rules.ManagerOptions{
		Appendable: loader.Storage(),
		Context:    context.Background(),
		Logger:     promslog.NewNopLogger(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Parser:     expressions,
		QueryFunc:  rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage()),
	})
	groups, found := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, files...)
	for _, problem := range found {
		return problem
	}
	begin := time.Unix(0, 0).UTC()
	for now := begin; !now.After(begin.Add(after)); now = now.Add(interval) {
		loader.WithSamplesTill(now, func(broken error) {
			if broken != nil {
				problem = broken
				return
			}
			for _, group := range groups {
				group.Eval(context.Background(), now)
			}
		})
	}
	for _, group := range groups {
		for _, rule := range group.AlertingRules() {
			if rule.LastError() != nil {
				return rule.LastError()
			}
			for _, alert := range rule.ActiveAlerts() {
				if alert.State == rules.StateFiring {
					fmt.Printf("%s: %s\n", rule.Name(), alert.Annotations.Get("summary"))
				}
			}
		}
	}
	return problem
}
