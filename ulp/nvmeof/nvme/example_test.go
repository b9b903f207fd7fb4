package nvme_test

import (
	"fmt"

	"rdmarw/ulp/nvmeof/nvme"
)

// A host asks for eight blocks, and the target says that there is no such place.
func Example() {
	capsule := make([]byte, nvme.CommandLen)
	cmd := nvme.Command{
		Opcode: nvme.Read, Flags: nvme.FlagSGL, CID: 7, NSID: 1,
		SGL: nvme.Descriptor{Addr: 0x7F0000, Len: 4096, Key: 0x1234, Type: nvme.SGLKeyedInvalidate},
	}
	cmd.SetBlocks(1<<40, 8)
	cmd.Encode(capsule)

	var got nvme.Command
	if err := got.Decode(capsule); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(got.LBA(), got.Blocks(), got.SGL)

	response := make([]byte, nvme.CompletionLen)
	answer := nvme.Completion{CID: got.CID, SQID: 1, Status: nvme.LBAOutOfRange | nvme.DNR}
	answer.Encode(response)

	var end nvme.Completion
	if err := end.Decode(response); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(end.Status)
	// Output:
	// 1099511627776 8 SGL 0x4f [0x7f0000,+4096) key 0x1234
	// NVMe status: LBA out of range (0x80, do not retry)
}
