package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/getkin/kin-openapi/openapi3"
)

var document *openapi3.T

// issueOf tells what is wrong with the body of a response; it is empty if nothing is.
func issueOf(operationID string, status int, body any) string {
	for _, item := range document.Paths.Map() {
		for _, operation := range item.Operations() {
			if operation.OperationID != operationID {
				continue
			}
			response := operation.Responses.Status(status)
			if response == nil {
				return fmt.Sprintf("%s has no status %d", operationID, status)
			}
			schema := response.Value.Content.Get("application/json").Schema.Value
			if err := schema.VisitJSON(body, openapi3.MultiErrors()); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

func main() {
	file := os.Getenv("FLOWTRAIL_DOCUMENT")
	if file == "" {
		file = "openapi.strict.json"
	}
	var err error
	if document, err = openapi3.NewLoader().LoadFromFile(file); err != nil {
		log.Fatal(err)
	}
	var answers []struct {
		OperationID string `json:"operationId"`
		Status      int    `json:"status"`
		Body        any    `json:"body"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&answers); err != nil {
		log.Fatal(err)
	}
	issues := make([]string, len(answers))
	for i, answer := range answers {
		issues[i] = issueOf(answer.OperationID, answer.Status, answer.Body)
	}
	if err := json.NewEncoder(os.Stdout).Encode(issues); err != nil {
		log.Fatal(err)
	}
}
