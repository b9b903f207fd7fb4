package transporttest_test

import (
	"fmt"

	"rdmarw/transport/sim"
	"rdmarw/transport/transporttest"
)

// What becomes of a READ by a guessed key, on two simulated devices.
func Example() {
	factory := func(profile string) transporttest.Factory {
		return func() (transporttest.Bed, error) {
			fabric := sim.New(sim.Config{Seed: 1, Stepped: true})
			p, _ := sim.LookupProfile(profile)
			a, err := fabric.NewDevice(p, "a")
			if err != nil {
				return transporttest.Bed{}, err
			}
			b, err := fabric.NewDevice(p, "b")
			if err != nil {
				return transporttest.Bed{}, err
			}
			return transporttest.Bed{
				A: a, B: b, Listen: "b:0", Nobody: "b:1",
				Misuse: fabric.Err, // what would have damaged a real machine
				Close:  fabric.Close,
			}, nil
		}
	}
	for _, row := range transporttest.Find("READ key byte plus one") {
		fmt.Println(row.ID())
		for _, profile := range []string{"rxe", "siw"} {
			fmt.Printf("%s: %v\n", profile, row.Record(factory(profile)))
		}
	}
	// Output:
	// range and key: READ key byte plus one
	// rxe: A=remote-access B=flushed sink=none
	// siw: A=flushed B=flushed sink=none
}
