package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// test is one test function of a package's binary.
type test struct {
	pkg, name string
	took      time.Duration
	reaches   map[int]bool
}

// outcome of a mutant.
type outcome uint8

const (
	unreached outcome = iota
	survived
	failedTest
	timedOut
)

// bench is the copy of the module with its test binaries.
type bench struct {
	dir  string
	pkgs []string
	slow time.Duration
}

func (b *bench) binary(pkg string) string {
	return filepath.Join(b.dir, strings.ReplaceAll(pkg, "/", "_")+".test")
}

// copyModule copies what the packages and their tests are built from.
func (b *bench) copyModule(root string) error {
	for _, name := range []string{"go.mod", "go.sum", "rw", "mrpool", "transport"} {
		out, err := exec.Command("cp", "-r", filepath.Join(root, name), b.dir).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

func (b *bench) build() error {
	for _, pkg := range b.pkgs {
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-o", b.binary(pkg), "./"+pkg)
		cmd.Dir = b.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// run runs tests of one package, with a mutant or none (0).
func (b *bench) run(pkg string, names []string, mutant int, trace string, limit time.Duration) (ok, hung bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	// A mutant may allocate for ever: limit the address space.
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 12000000; exec "$@"`, "sh", b.binary(pkg),
		"-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Dir = filepath.Join(b.dir, pkg)
	cmd.Env = append(os.Environ(), "MUTANT="+strconv.Itoa(mutant), "MUTANT_TRACE="+trace)
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	return err == nil, ctx.Err() != nil
}

// profile runs each test alone, to know its time and the mutants that it reaches.
func (b *bench) profile() ([]test, error) {
	var tests []test
	for _, pkg := range b.pkgs {
		cmd := exec.Command(b.binary(pkg), "-test.list", ".")
		cmd.Dir = filepath.Join(b.dir, pkg)
		out, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Fields(string(out)) {
			if strings.HasPrefix(name, "Benchmark") || strings.HasPrefix(name, "Fuzz") {
				continue
			}
			trace := filepath.Join(b.dir, "trace")
			os.Remove(trace)
			begun := time.Now()
			ok, hung := b.run(pkg, []string{name}, 0, trace, b.slow+time.Second)
			t := test{pkg: pkg, name: name, took: time.Since(begun), reaches: make(map[int]bool)}
			if !ok && !hung {
				fmt.Printf("left out, fails without any mutant: %s %s\n", pkg, name)
				continue
			}
			seen, err := os.ReadFile(trace)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
			for _, id := range bytes.Fields(seen) {
				n, err := strconv.Atoi(string(id))
				if err != nil {
					return nil, err
				}
				t.reaches[n] = true
			}
			if t.took > b.slow {
				fmt.Printf("left out, takes more than %v: %s %s\n", b.slow, pkg, name)
				continue
			}
			tests = append(tests, t)
		}
	}
	slices.SortFunc(tests, func(a, b test) int { return int(a.took - b.took) })
	return tests, nil
}

// try runs the tests that reach a mutant, in batches: most mutants are killed by
// the first and quickest.
func (b *bench) try(id int, tests []test) outcome {
	var reaching []test
	for _, t := range tests {
		if t.reaches[id] {
			reaching = append(reaching, t)
		}
	}
	if len(reaching) == 0 {
		return unreached
	}
	budget := 500 * time.Millisecond
	for len(reaching) > 0 {
		n, sum := 0, time.Duration(0)
		for n < len(reaching) && (n == 0 || sum < budget) {
			sum += reaching[n].took
			n++
		}
		batch := reaching[:n]
		reaching = reaching[n:]
		budget *= 4
		for _, pkg := range b.pkgs {
			var names []string
			for _, t := range batch {
				if t.pkg == pkg {
					names = append(names, t.name)
				}
			}
			if len(names) == 0 {
				continue
			}
			if ok, hung := b.run(pkg, names, id, "", 5*sum+8*time.Second); hung {
				return timedOut
			} else if !ok {
				return failedTest
			}
		}
	}
	return survived
}

// tryAll tries mutants, a few at a time.
func (b *bench) tryAll(mutants []mutant, tests []test, parallel int) []outcome {
	outcomes := make([]outcome, len(mutants))
	var wg sync.WaitGroup
	next := make(chan int)
	for range parallel {
		wg.Go(func() {
			for i := range next {
				outcomes[i] = b.try(mutants[i].ID, tests)
			}
		})
	}
	for i := range mutants {
		if i%50 == 0 {
			fmt.Printf("%d of %d\n", i, len(mutants))
		}
		next <- i
	}
	close(next)
	wg.Wait()
	return outcomes
}
