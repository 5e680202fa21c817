// Reads YAML documents on standard input and writes them as a JSON list: what charts render, and the
// definitions of custom resources, for programs that read JSON only.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	documents := []any{}
	decoder := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(os.Stdin), 4096)
	for {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if document != nil {
			documents = append(documents, document)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(documents); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
