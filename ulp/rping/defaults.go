package rping

import (
	"context"
	"fmt"
	"log/slog"

	"rdmarw/transport"
)

func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

func sizeOr(size, def int) (int, error) {
	switch {
	case size == 0:
		return def, nil
	case size < 0 || size > MaxSize:
		return 0, fmt.Errorf("%w: %d bytes, at most %d are possible", ErrSize, size, MaxSize)
	}
	return size, nil
}

// establish connects or accepts.
func establish(ctx context.Context, do func(context.Context, transport.ConnParams) (transport.ConnInfo, error)) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	_, err := do(ctx, depths)
	return err
}

// shown is the part of a ping that is worth logging.
func shown(data []byte) string { return string(data[:min(len(data)-1, 64)]) }
