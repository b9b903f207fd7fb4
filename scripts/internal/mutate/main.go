package main

import (
	_ "embed"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// targets are the planner, the pool and the endpoint.
var targets = []string{
	"rw/plan.go", "rw/direct.go", "rw/register.go", "rw/split.go",
	"mrpool/pool.go", "mrpool/mr.go", "mrpool/peer.go", "mrpool/ops.go", "mrpool/reserve.go", "mrpool/deque.go", "mrpool/sinks.go", "mrpool/isolated.go", "mrpool/state.go",
	"rw/submit.go", "rw/post.go", "rw/complete.go", "rw/drain.go", "rw/chain.go", "rw/exposure.go",
}

//go:embed switch/mutant.go.txt
var switchSource []byte

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 0, "try a random `number` of the mutants; 0: all")
	seed := flag.Uint64("seed", 1, "of that choice")
	slow := flag.Duration("slow", 3*time.Second, "leave out tests that take longer alone")
	parallel := flag.Int("p", 2, "mutants tried at a time")
	list := flag.Bool("list", false, "only list the mutants")
	flag.Parse()
	files := targets
	if flag.NArg() > 0 {
		files = flag.Args()
	}
	if err := measure(files, *n, *seed, *slow, *parallel, *list); err != nil {
		log.Fatal(err)
	}
}

func measure(files []string, n int, seed uint64, slow time.Duration, parallel int, list bool) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, pkgs: []string{"mrpool", "rw"}, slow: slow}
	if err := b.copyModule("."); err != nil {
		return err
	}
	var all []mutant
	for _, pkg := range b.pkgs {
		var mine []string
		for _, f := range files {
			if filepath.Dir(f) == pkg {
				mine = append(mine, f)
			}
		}
		if err := mutate(dir, pkg, mine, &all); err != nil {
			return err
		}
	}
	fmt.Printf("%d mutants in %d files\n", len(all), len(files))
	if list {
		for _, m := range all {
			fmt.Printf("%s:%d %s: %s\n", m.File, m.Line, m.Func, m.What)
		}
		return nil
	}
	into := filepath.Join(dir, "internal", "mutant")
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(into, "mutant.go"), switchSource, 0o644); err != nil {
		return err
	}
	if err := b.build(); err != nil {
		return err
	}
	tests, err := b.profile()
	if err != nil {
		return err
	}
	fmt.Printf("%d tests\n", len(tests))
	// Runs without a mutant among the others: if one of them fails, tests fail for
	// other reasons than mutants.
	const controls = 10
	chosen := slices.Clone(all)
	if n > 0 && n < len(chosen) {
		r := rand.New(rand.NewPCG(seed, 0))
		r.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:n]
	}
	for i := range tests {
		tests[i].reaches[0] = true
	}
	chosen = append(chosen, slices.Repeat([]mutant{{File: "(no mutant)"}}, controls)...)
	rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	outcomes := b.tryAll(chosen, tests, parallel)
	report(chosen, outcomes, len(all))
	return nil
}

// counts are those of one file.
type counts struct{ killed, hung, survived, unreached int }

func report(chosen []mutant, outcomes []outcome, of int) {
	byFile := make(map[string]*counts)
	var survivors []string
	for i, m := range chosen {
		c := byFile[m.File]
		if c == nil {
			c = new(counts)
			byFile[m.File] = c
		}
		line := fmt.Sprintf("%s:%d %s: %s", m.File, m.Line, m.Func, m.What)
		switch outcomes[i] {
		case failedTest:
			c.killed++
		case timedOut:
			c.hung++
		case survived:
			c.survived++
			survivors = append(survivors, "survived "+line)
		case unreached:
			c.unreached++
			survivors = append(survivors, "unreached "+line)
		}
	}
	slices.Sort(survivors)
	for _, s := range survivors {
		if !strings.Contains(s, "(no mutant)") {
			fmt.Println(s)
		}
	}
	var sum counts
	names := make([]string, 0, len(byFile))
	for name := range byFile {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Println("| file | mutants | killed | of these by timeout | survived | of these unreached |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, name := range names {
		c := byFile[name]
		fmt.Println(c.row(name))
		if name != "(no mutant)" {
			sum.killed += c.killed
			sum.hung += c.hung
			sum.survived += c.survived
			sum.unreached += c.unreached
		}
	}
	fmt.Println(sum.row("all"))
	total := sum.killed + sum.hung + sum.survived + sum.unreached
	fmt.Printf("%d of %d mutants tried, %.1f %% killed\n", total, of, 100*float64(sum.killed+sum.hung)/float64(total))
}

func (c *counts) row(name string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d |", name, c.killed+c.hung+c.survived+c.unreached, c.killed+c.hung, c.hung, c.survived+c.unreached, c.unreached)
}
