import json
import os
import sys

from jsonschema import Draft202012Validator

with open(os.environ.get('FLOWTRAIL_DOCUMENT', 'openapi.strict.json')) as file:
    document = json.load(file)
operations = {
    operation['operationId']: operation for item in document['paths'].values() for operation in item.values()
}


def issue_of(operation_id: str, status: int, body: object) -> str:
    """What is wrong with the body of a response; empty if nothing."""
    response = operations[operation_id]['responses'].get(str(status))
    if response and '$ref' in response:
        response = document['components']['responses'][response['$ref'].split('/')[-1]]
    if not response:
        return f'{operation_id} has no status {status}'
    # With the components beside it, the references in the schema are found.
    schema = {**response['content']['application/json']['schema'], 'components': document['components']}
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    errors = validator.iter_errors(body)
    return '; '.join(f'{error.json_path} {error.message}' for error in errors)


answers = json.load(sys.stdin)
print(json.dumps([issue_of(answer['operationId'], answer['status'], answer['body']) for answer in answers]))
