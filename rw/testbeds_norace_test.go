//go:build !race

package rw_test

import "rdmarw/transport/sim"

// simProfiles are all.
var simProfiles = func() (names []string) {
	for _, p := range sim.Profiles() {
		names = append(names, p.Name)
	}
	return names
}()
