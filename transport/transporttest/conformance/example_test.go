package conformance_test

import (
	"fmt"

	"rdmarw/transport/transporttest/conformance"
)

// What devices did is there without devices.
func Example() {
	columns, err := conformance.Recorded()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range columns {
		fmt.Println(c.Name)
	}
	// Output:
	// rxe0
	// siw0
}
