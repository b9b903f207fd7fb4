// Package conformance holds the simulator to real devices: it runs the rows of package
// transporttest on Soft-RoCE (rxe) and Soft-iWARP (siw) of Linux 6.12 and on their
// profiles of package sim, and compares them cell by cell.
//
// What the devices did is recorded in recorded.txt, which is how machines without devices
// check the simulator. It is made by
//
//	go build -tags ibverbs -o /tmp/bench ./bench
//	scripts/guest /tmp/bench conformance -live -record > transport/transporttest/conformance/recorded.txt
//
// and tests on the devices fail when it isn't what they do any more.
//
// The devices are opened with LOCAL_INV of windows granted, which package ibverbs holds
// back on rxe, and so are their profiles: what it does there is part of the table.
package conformance
