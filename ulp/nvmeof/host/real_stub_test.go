//go:build !ibverbs || !linux || !cgo

package host_test

import (
	"testing"

	"rdmarw/transport"
)

func realPlaces() []place { return nil }

func openReal(testing.TB, string) (transport.Device, string) { panic("no real devices") }

func resources(testing.TB) []string { return nil }
