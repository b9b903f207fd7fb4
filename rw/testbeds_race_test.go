//go:build race

package rw_test

// simProfiles are those with code paths of their own: the race detector looks at the
// code, which is the same for all others.
var simProfiles = []string{"rxe", "siw", "siw-kernel", "mlx5", "mlx5-kernel"}
