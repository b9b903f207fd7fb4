package backend

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkSubmit reads 4 KiB from a file, one request or several at a time. An op is a
// request.
func BenchmarkSubmit(b *testing.B) {
	const each = 4096
	f, err := OpenFile(filepath.Join(b.TempDir(), "f"), FileConfig{Size: size})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	buf := aligned(b, 8*each)
	done := make(chan error, 8)
	var rs []*Request
	for i := range 8 {
		rs = append(rs, &Request{Op: Read, LBA: uint64(i) * each / 512, Blocks: each / 512, Data: buf[i*each:][:each],
			Done: func(_ *Request, err error) { done <- err }})
	}
	for _, n := range []int{1, 8} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(each)
			for i := 0; i < b.N; i += n {
				f.SubmitAll(rs[:n])
				for range n {
					if err := <-done; err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
