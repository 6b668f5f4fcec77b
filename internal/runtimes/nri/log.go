package nri

import (
	"context"
	"fmt"
	"log/slog"
)

// logger writes the log of the NRI library at a lower level. That log helps
// only to find an error.
type logger struct{ log *slog.Logger }

func (l logger) Debugf(ctx context.Context, format string, args ...any) {
	l.at(ctx, slog.LevelDebug, format, args)
}
func (l logger) Infof(ctx context.Context, format string, args ...any) {
	l.at(ctx, slog.LevelDebug, format, args)
}
func (l logger) Warnf(ctx context.Context, format string, args ...any) {
	l.at(ctx, slog.LevelDebug, format, args)
}
func (l logger) Errorf(ctx context.Context, format string, args ...any) {
	l.at(ctx, slog.LevelWarn, format, args)
}

func (l logger) at(ctx context.Context, level slog.Level, format string, args []any) {
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, "NRI: "+fmt.Sprintf(format, args...))
	}
}
