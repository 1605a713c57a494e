// Prints the objects of Kubernetes manifests, or a compose file, as JSON, after decoding them strictly: unknown and repeated
// fields and wrong types are errors.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func manifests(name string) ([]runtime.Object, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var objects []runtime.Object
	for documents := yaml.NewYAMLReader(bufio.NewReader(file)); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}

func compose(name string) (any, error) {
	options, err := cli.NewProjectOptions([]string{name}, cli.WithOsEnv)
	if err != nil {
		return nil, err
	}
	return options.LoadProject(context.Background())
}

func main() {
	log.SetFlags(0)
	var value any
	var err error
	switch kind := os.Args[1]; kind {
	case "kubernetes":
		value, err = manifests(os.Args[2])
	case "compose":
		value, err = compose(os.Args[2])
	default:
		err = fmt.Errorf("unknown kind of file: %s", kind)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(value)
	}
	if err != nil {
		log.Fatal(err)
	}
}
