package pack

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

// Main runs a program of deploy with the arguments of the process. SIGINT ends ctx. After
// an error it prints it behind the name of the program, and the exit status is 1.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Parse parses arguments by flags, to which it adds --root. It also sets the time of the
// sources, which the environment has.
func (o *Order) Parse(flags *flag.FlagSet, args []string) (err error) {
	flags.StringVar(&o.Root, "root", ".", "where the sources are")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.Created, err = sourceDate()
	return err
}
