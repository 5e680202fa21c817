// Command compose reads a Compose file as docker compose does, with its own library, and writes the
// project that results, with all defaults and references resolved, as JSON. A file that docker compose
// would refuse is refused here, with the same message.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: compose FILE [PROFILE...]")
		os.Exit(2)
	}
	if err := show(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show(file string, profiles []string) error {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithProfiles(profiles))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	text, err := project.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}
