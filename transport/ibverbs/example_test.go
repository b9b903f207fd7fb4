package ibverbs_test

import (
	"fmt"

	"rdmarw/transport/ibverbs"
)

// What a program can say about the machine that it runs on.
func ExampleDevices() {
	infos, err := ibverbs.Devices()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, i := range infos {
		fmt.Println(i)
		d, err := ibverbs.Open(i.Name)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(d.Caps().MaxSGERead, "SGEs per READ")
		if err := d.Close(); err != nil {
			fmt.Println(err)
		}
	}
}
