#!/bin/sh
# fetch_jars.sh DIRECTORY POM: copy what the pom.xml names, and what that needs, into DIRECTORY through Maven.
# Nothing when it was fetched for this very pom.xml before.
set -eu
directory=$1
pom=$2

if cmp -s "$pom" "$directory/pom.xml"; then
    exit 0
fi
echo "fetching the jars of $pom into $directory" >&2
mkdir -p "$(dirname -- "$directory")"
fresh=$(mktemp -d "$directory.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
mvn -q -B -f "$pom" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime "-DoutputDirectory=$(CDPATH='' cd -- "$fresh" && pwd)" >&2
chmod 755 "$fresh"
cp "$pom" "$fresh/pom.xml"
rm -rf "$directory"
mv "$fresh" "$directory"
