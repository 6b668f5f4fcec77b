package nri

import (
	"context"
	"fmt"
	"log/slog"
)

// logger lowers the level of the messages of the NRI library, because they help
// only to find a fault.
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
