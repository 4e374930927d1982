#!/bin/sh
# Checks the files that no compiler reads: scripts, the Dockerfile, workflows, and files with a public schema.
# `make lint-files` installs the tools, and puts them and their python on the path.
set -eu
cd "$(dirname "$0")/.."

# New files count before they are committed.
files() {
    git ls-files --cached --others --exclude-standard -- "$@"
}

# The names of these files have no blanks.
# shellcheck disable=SC2046
shellcheck $(files '*.sh' .ci/run)
hadolint Dockerfile
# Checks the scripts inside of workflows with shellcheck.
actionlint
zizmor --offline --quiet --no-progress .github

# schema NAME FILE
schema() {
    found=$(python -m check_jsonschema --builtin-schema "vendor.$1" "$2") || {
        echo "$found" >&2
        exit 1
    }
}
schema dependabot .github/dependabot.yml
schema citation-file-format CITATION.cff
schema github-issue-config .github/ISSUE_TEMPLATE/config.yml
# shellcheck disable=SC2013,SC2046
for compose in $(grep -l '^services:' $(files 'examples/*.yaml')); do
    schema compose-spec "$compose"
done
for form in $(files '.github/ISSUE_TEMPLATE/*.yml'); do
    [ "$form" = .github/ISSUE_TEMPLATE/config.yml ] || schema github-issue-forms "$form"
done
