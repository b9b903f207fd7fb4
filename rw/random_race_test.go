//go:build race

package rw_test

// profilesPerCheck is how many profiles share one property check: under the race
// detector each run takes ten times as long.
const profilesPerCheck = 17
