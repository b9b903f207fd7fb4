package ibverbs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"rdmarw/transport"

	"github.com/Mellanox/rdmamap"
)

// PortCounters are what the kernel counts for a port of a device.
type PortCounters struct {
	Port int `json:"port"`
	// Counters are those of the wire protocol (port_xmit_packets ...) and the
	// driver's own (rxe: sent_pkts, out_of_seq_request, retry_exceeded_err ...), by the
	// kernel's names. A device may have none: siw doesn't.
	Counters map[string]uint64 `json:"counters"`
}

// Counters reads the counters of a device's ports, in order of the ports. It needs
// neither cgo nor rights. Errors match transport.ErrNoDevice.
func Counters(device string) ([]PortCounters, error) {
	return counters(rdmamap.RdmaClassDir, device)
}

func counters(class, device string) ([]PortCounters, error) {
	ports, err := os.ReadDir(filepath.Join(class, device, "ports"))
	if errors.Is(err, fs.ErrNotExist) || device == "" || filepath.Base(device) != device {
		return nil, &transport.Error{Op: "counters", Device: device, WR: -1, Err: transport.ErrNoDevice}
	}
	if err != nil {
		return nil, fmt.Errorf("counters of %s: %w", device, err)
	}
	var all []PortCounters
	for _, p := range ports {
		n, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		pc := PortCounters{Port: n, Counters: make(map[string]uint64)}
		for _, kind := range []string{"counters", "hw_counters"} {
			if err := pc.read(filepath.Join(class, device, "ports", p.Name(), kind)); err != nil {
				return nil, fmt.Errorf("counters of %s: %w", device, err)
			}
		}
		all = append(all, pc)
	}
	slices.SortFunc(all, func(a, b PortCounters) int { return a.Port - b.Port })
	return all, nil
}

// read adds the counters of a folder, if it is there. What isn't a number is
// something else ("lifespan" is how old the driver lets its numbers get, and
// no counter).
func (pc *PortCounters) read(dir string) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil || f.Name() == "lifespan" {
			continue // some drivers refuse single ones
		}
		if v, err := strconv.ParseUint(string(trimNewline(text)), 10, 64); err == nil {
			pc.Counters[f.Name()] = v
		}
	}
	return nil
}

func trimNewline(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		return b[:n-1]
	}
	return b
}
