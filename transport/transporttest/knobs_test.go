package transporttest_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/transport/transporttest"
	"rdmarw/transport/transporttest/conformance"
)

// unpinned are what a profile says that no row shows, and why.
var unpinned = map[string]string{
	"FlushesLate":      "what is posted before the error is known: a race on a device",
	"LocalInvWaits":    "needs a LOCAL_INV that could overtake a READ: a race on a device",
	"FreeWindowsFirst": "costs a minute on rxe",
	"Segment":          "how much of a refused WRITE lands depends on how TCP cuts it",
	"BadRegistration":  "neither device has fast registration",
}

// What the profiles of rxe and siw say of these devices is what the table shows of them:
// with any of it changed, a cell is another.
func TestEveryTraitOfTheProfilesIsSeen(t *testing.T) {
	inGuest(t)
	rows := transporttest.Find("")
	fields := reflect.TypeFor[sim.Profile]()
	for i := range fields.NumField() {
		field := fields.Field(i)
		if _, ok := unpinned[field.Name]; ok {
			continue
		}
		switch field.Type.Kind() {
		case reflect.Bool, reflect.Uint8, reflect.Int:
		default:
			continue // the name, capabilities, costs, what depends on the kind
		}
		t.Run(field.Name, func(t *testing.T) {
			t.Parallel()
			for _, name := range []string{"rxe", "siw"} {
				p, _ := sim.LookupProfile(name)
				switch v := reflect.ValueOf(&p).Elem().Field(i); {
				case v.Kind() == reflect.Bool:
					v.SetBool(!v.Bool())
				case field.Type == reflect.TypeFor[transport.Status]():
					v.SetUint(uint64(transport.StatusFatal))
				case v.Kind() == reflect.Int:
					v.SetInt(v.Int() + 1)
				default:
					v.SetUint((v.Uint() + 1) % 3)
				}
				if changed(rows, p, name) {
					return
				}
			}
			require.Fail(t, "no row shows it")
		})
	}
}

// changed tells whether any row differs from what the profile's own devices do.
func changed(rows []transporttest.Row, p sim.Profile, name string) bool {
	cfg := sim.Config{Seed: 1, Stepped: true}
	for i := range rows {
		row := &rows[i]
		if row.Record(conformance.Simulate(p, cfg)).String() != row.Record(conformance.Simulated(name, 1)).String() {
			return true
		}
	}
	return false
}
