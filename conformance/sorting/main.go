// Command sorting prints how Go sorts lists with equal elements: a JSON line
// {"keys": [...], "order": [...]} for each of many lists, where order has the indices of the keys as
// sort.Slice arranges them. It ends with an error if sort.Sort or slices.SortFunc arranges a list differently.
//
// Run by hand: go run ./sorting | gzip -9n > sorting/permutations.jsonl.gz
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"sort"
)

type list struct {
	Keys  []int `json:"keys"`
	Order []int `json:"order"`
}

func (l list) Len() int           { return len(l.Order) }
func (l list) Less(i, j int) bool { return l.Keys[l.Order[i]] < l.Keys[l.Order[j]] }
func (l list) Swap(i, j int)      { l.Order[i], l.Order[j] = l.Order[j], l.Order[i] }

func indices(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

func record(keys []int) {
	one := list{keys, indices(len(keys))}
	sort.Slice(one.Order, func(i, j int) bool { return keys[one.Order[i]] < keys[one.Order[j]] })
	second := list{keys, indices(len(keys))}
	sort.Sort(second)
	third := indices(len(keys))
	slices.SortFunc(third, func(a, b int) int { return keys[a] - keys[b] })
	if !slices.Equal(one.Order, second.Order) || !slices.Equal(one.Order, third) {
		fmt.Fprintln(os.Stderr, "the three sorts differ:", keys)
		os.Exit(1)
	}
	line, err := json.Marshal(one)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// adversary returns keys for which the quicksort chooses bad pivots until it falls back to heapsort
// (McIlroy, A Killer Adversary for Quicksort): values are decided while they are compared. The candidates for
// the first pivot are decided before, so that the list does not look sorted.
func adversary(rng *rand.Rand, n int) []int {
	gas := 2 * n
	keys := make([]int, n)
	for i := range keys {
		keys[i] = gas
	}
	first := rng.Perm(9)
	for i, value := range first {
		keys[n/4*(i/3+1)+i%3-1] = value
	}
	solid, candidate := len(first), 0
	order := indices(n)
	sort.Slice(order, func(i, j int) bool {
		x, y := order[i], order[j]
		if keys[x] == gas && keys[y] == gas {
			freeze := y
			if x == candidate {
				freeze = x
			}
			keys[freeze] = solid
			solid++
		}
		if keys[x] == gas {
			candidate = x
		} else if keys[y] == gas {
			candidate = y
		}
		return keys[x] < keys[y]
	})
	return keys
}

func main() {
	rng := rand.New(rand.NewSource(1))
	for _, n := range []int{0, 1, 2, 3, 7, 8, 11, 12, 13, 14, 17, 20, 31, 32, 33, 49, 50, 51, 64, 80, 100, 150, 257} {
		for _, distinct := range []int{1, 2, 3, 5, n/3 + 1, 10*n + 1} {
			random := make([]int, n)
			for i := range random {
				random[i] = rng.Intn(distinct)
			}
			record(random)
			ascending := slices.Clone(random)
			slices.Sort(ascending)
			record(ascending)
			descending := slices.Clone(ascending)
			slices.Reverse(descending)
			record(descending)
			nearly := slices.Clone(ascending)
			for range 3 {
				if n > 1 {
					i, j := rng.Intn(n), rng.Intn(n)
					nearly[i], nearly[j] = nearly[j], nearly[i]
				}
			}
			record(nearly)
			saw := make([]int, n)
			for i := range saw {
				saw[i] = i % distinct
			}
			record(saw)
			organ := make([]int, n)
			for i := range organ {
				organ[i] = min(i, n-1-i) / (n/distinct + 1)
			}
			record(organ)
		}
	}
	for _, n := range []int{60, 100, 200, 400} {
		keys := adversary(rng, n)
		record(keys)
		for i := range keys {
			keys[i] /= 3
		}
		record(keys)
	}
}
