// The oracle answers what Kubernetes itself answers: it calls the packages that kube-scheduler consists of.
//
//	oracle cel          lines as in conformance/cel
//	oracle allocations  lines as in conformance/devices
//
// It reads JSON lines from standard input and prints one line of JSON for each.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

var modes = map[string]func([]byte) (any, error){
	"cel":         evaluate,
	"allocations": allocate,
}

func main() {
	if len(os.Args) != 2 || modes[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: oracle cel|allocations")
		os.Exit(2)
	}
	answer := modes[os.Args[1]]
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	output := json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	for number := 1; lines.Scan(); number++ {
		result, err := answer(lines.Bytes())
		if err == nil {
			err = output.Encode(result)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "line %d: %v\n", number, err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
