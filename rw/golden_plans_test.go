package rw_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/rw"
	"rdmarw/transport/sim"
)

// eachPlan runs all cases of a profile, in the order of the table.
func eachPlan(t *testing.T, profile sim.Profile, fn func(r *planRig, o *outcome)) {
	rigs := make(map[string]*planRig)
	for _, c := range planCases() {
		r := rigs[c.under]
		if r == nil {
			r = newPlanRig(t, profile, c.under)
			rigs[c.under] = r
		}
		o := r.run(c)
		fn(r, &o)
	}
	for _, r := range rigs {
		r.end()
	}
}

// Plans are what they were: a file for each profile and dialect, a line for each
// case. What must hold of any plan is TestPlansKeepTheRules.
func TestPlansAreAsBefore(t *testing.T) {
	for _, profile := range planProfiles() {
		t.Run(profile.Name, func(t *testing.T) {
			var b strings.Builder
			fmt.Fprintf(&b, "# %s: operation, local list, remote ranges, policy and pool, size: plan and its cost | requests as posted\n", profile.Name)
			eachPlan(t, profile, func(_ *planRig, o *outcome) { b.WriteString(o.line() + "\n") })
			requireSameLines(t, profile.Name+".golden", b.String())
		})
	}
}

// Some plans, request by request, with what each key covers.
func TestPlansInFull(t *testing.T) {
	var b strings.Builder
	for _, f := range fullPlans {
		profile := f.profile()
		r := newPlanRig(t, profile, f.under) // a fresh one: nothing depends on the order
		o := r.run(f.planCase)
		b.WriteString(profile.Name + ": " + o.inFull(&r.mem) + "\n")
		r.end()
	}
	requireSameLines(t, "in-full.golden", b.String())
}

type fullPlan struct {
	on string
	planCase
}

func (f fullPlan) profile() sim.Profile {
	for _, p := range planProfiles() {
		if p.Name == f.on {
			return p
		}
	}
	panic("no profile " + f.on)
}

var fullPlans = []fullPlan{
	{"rxe", planCase{opRead, "limit+1", "two", "default"}},
	{"rxe", planCase{opWrite, "holes", "two", "default"}},
	{"rxe", planCase{opWrite, "part", "one", "default"}},
	{"rxe", planCase{opRead, "message+1", "one", "default"}},
	{"rxe", planCase{opRead, "gaps", "17", "default"}},
	{"rxe", planCase{opSource, "two-regions", "-", "default"}},
	{"rxe-kernel", planCase{opSink, "gaps", "-", "default"}},
	{"rxe-kernel", planCase{opRead, "9", "one", "above-8"}},
	{"siw", planCase{opRead, "gaps", "two", "default"}},
	{"siw", planCase{opRead, "gaps", "two", "staging"}},
	{"siw", planCase{opRead, "limit+1", "two", "persistent"}},
	{"siw", planCase{opRead, "limit+1", "two", "direct"}},
	{"siw", planCase{opWrite, "limit+1", "two", "default"}},
	{"siw", planCase{opSource, "gaps", "-", "default"}},
	{"siw-kernel", planCase{opRead, "gaps", "two", "default"}},
	{"siw-kernel", planCase{opRead, "64KiB", "two", "default"}},
	{"siw-kernel", planCase{opRead, "two-regions", "17", "default"}},
	{"siw-kernel", planCase{opWrite, "gaps", "two", "forced"}},
	{"mlx5", planCase{opRead, "limit+1", "two", "default"}},
	{"mlx5", planCase{opSource, "gaps", "-", "default"}},
	{"mlx5-kernel", planCase{opRead, "gaps", "two", "default"}},
	{"mlx5-kernel", planCase{opRead, "256", "one", "second-use"}},
	{"mlx5-kernel", planCase{opRead, "256", "one", "pool-empty"}},
	{"mlx5-kernel", planCase{opSink, "gaps", "-", "default"}},
	{"mlx4", planCase{opSource, "one", "-", "default"}},
	{"hns", planCase{opRead, "limit+1", "two", "default"}},
	{"cxgb4", planCase{opRead, "limit+1", "two", "default"}},
	{"cxgb4-kernel", planCase{opRead, "64KiB", "one", "default"}},
	{"cxgb4-kernel-without-read-inv", planCase{opRead, "gaps", "two", "default"}},
	{"irdma-iwarp", planCase{opRead, "limit+1", "one", "default"}},
	{"irdma-iwarp-kernel", planCase{opRead, "limit+1", "two", "default"}},
	{"irdma-iwarp-kernel", planCase{opRead, "one", "two", "persistent"}},
}

func requireSameLines(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "plans", name)
	if *rw.UpdateGolden {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to make it")
	wanted, have := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range min(len(wanted), len(have)) { // line by line: a diff of all says nothing
		require.Equal(t, wanted[i], have[i], "%s, line %d; -update if that is right", path, i+1)
	}
	require.Len(t, have, len(wanted), path)
}
