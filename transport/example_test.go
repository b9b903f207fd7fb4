package transport_test

import (
	"fmt"

	"rdmarw/transport"
)

// A registration with room for two pages covers one and a half pieces of this
// list, and tells where the next registration has to go on.
func ExampleCoverage() {
	list := []transport.Piece{{Addr: 0x10000, Len: 4096}, {Addr: 0x40000, Len: 8192}}
	first := transport.Coverage(list, transport.Cursor{}, 0, 12, 2, false)
	fmt.Println(first.Len, first.Pages, first.Next)
	second := transport.Coverage(list, first.Next, 0, 12, 2, false)
	fmt.Printf("%#x %d\n", second.IOVA, second.Len)
	// Output:
	// 8192 2 {1 4096}
	// 0x41000 4096
}
