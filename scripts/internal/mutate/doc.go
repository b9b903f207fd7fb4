// Command mutate measures what the tests of a few packages notice: it makes small
// changes to the code (mutants), one at a time, and counts those for which no test
// fails (survivors).
//
//	go run ./scripts/internal/mutate            # all mutants of the files below
//	go run ./scripts/internal/mutate -n 100     # a random 100 of them
//	go run ./scripts/internal/mutate rw/post.go # those of one file
//
// All mutants are compiled into one test binary per package, in a copy of the module,
// and an environment variable switches one of them on: building takes seconds once
// instead of for each. Which tests reach a mutant is recorded beforehand, so that
// only these are run, the quick ones first. Tests that take longer than -slow alone
// are left out; the rate is thus that of the quick tests.
//
// Mutants: comparisons negated, and moved by one; && and || swapped; conditions
// negated; + and -, & and |, << and >> swapped; ++ and --; assignments and calls left out;
// true and false swapped; nil returned instead of an error; break and continue left
// out. Locking, deferred calls, and the texts of errors are left alone.
package main
