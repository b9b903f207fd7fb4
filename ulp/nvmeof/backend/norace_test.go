//go:build !race

package backend

// raced is described in race_test.go.
const raced = false
