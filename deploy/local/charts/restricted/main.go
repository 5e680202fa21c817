// Reads objects as a JSON list on standard input, and writes for each pod, or template of pods, what
// the restricted Pod Security Standard refuses, as an API server would find it: a line for each pod
// that is refused. It fails if there is no pod.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

type object struct {
	Kind     string            `json:"kind"`
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     json.RawMessage   `json:"spec"`
}

func main() {
	var objects []object
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		fail(err)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		fail(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	pods := 0
	for _, one := range objects {
		var spec corev1.PodSpec
		switch one.Kind {
		case "Pod":
			err = json.Unmarshal(one.Spec, &spec)
		case "Deployment", "Job", "StatefulSet":
			var owner struct {
				Template corev1.PodTemplateSpec `json:"template"`
			}
			err = json.Unmarshal(one.Spec, &owner)
			spec = owner.Template.Spec
		default:
			continue
		}
		if err != nil {
			fail(err)
		}
		pods++
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &one.Metadata, &spec))
		if !result.Allowed {
			fmt.Printf("%s %s: %s\n", one.Kind, one.Metadata.Name, result.ForbiddenDetail())
		}
	}
	if pods == 0 {
		fail(fmt.Errorf("there is no pod"))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
