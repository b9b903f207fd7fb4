package backend_test

import (
	"fmt"

	"rdmarw/ulp/nvmeof/backend"
)

func ExampleMemory() {
	b, err := backend.NewMemory(1<<20, 512)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	done := func(r *backend.Request, err error) { fmt.Println(r.Op, r.Blocks, err) }
	b.Submit(&backend.Request{Op: backend.Write, LBA: 8, Blocks: 1, Data: make([]byte, 512), Done: done})
	b.Submit(&backend.Request{Op: backend.Flush, Done: done})
	// Output:
	// write 1 <nil>
	// flush 0 <nil>
}
