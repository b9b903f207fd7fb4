//go:build !(ibverbs && linux && cgo)

package postcost

import (
	"fmt"

	"rdmarw/transport"
)

var errBuild = fmt.Errorf("built without tag ibverbs, or without cgo: %w", transport.ErrUnsupported)

// Stub measures posts to the provider that copies. Not in this build.
func Stub() (Result, error) { return Result{}, errBuild }

// Device measures posts to a device. Not in this build.
func Device(string) (Result, error) { return Result{}, errBuild }
