//go:build !race

package rw_test

// profilesPerCheck is how many profiles share one property check.
const profilesPerCheck = 3
