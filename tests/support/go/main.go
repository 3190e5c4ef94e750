// The Go half of tests/support/drivers/franz_go_driver.py: reads partition 0 of a topic with franz-go, in a group or without one.
// `franz transform …` is one of the programs of tests/support/transforms.py instead.
//
// franz ADDRESS TOPIC GROUP OFFSET: one line of JSON for each record, from the offset, or where the group has committed
// for -1, up to the record whose key is "the end"; there the group's position is committed, unless GROUP is "-".
// FRANZ_CA and FRANZ_CERTIFICATE name files of PEM: the broker's authority, and the client's certificate with its key.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type header struct {
	Key   string
	Value []byte
}

type record struct {
	Offset    int64
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []header
}

func main() {
	if os.Args[1] == "transform" {
		transform(os.Args[2:])
		return
	}
	address, topic, group := os.Args[1], os.Args[2], os.Args[3]
	offset, err := strconv.ParseInt(os.Args[4], 10, 64)
	check(err)
	options := []kgo.Opt{kgo.SeedBrokers(address), kgo.FetchMaxPartitionBytes(2000), kgo.FetchMaxBytes(2000)}
	if ca := os.Getenv("FRANZ_CA"); ca != "" {
		options = append(options, kgo.DialTLSConfig(secured(ca, os.Getenv("FRANZ_CERTIFICATE"))))
	}
	if group == "-" {
		places := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(offset)}}
		options = append(options, kgo.ConsumePartitions(places))
	} else {
		options = append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	patience, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for read(client, patience) {
	}
	if group != "-" {
		check(client.CommitUncommittedOffsets(patience))
	}
}

func secured(ca string, certificate string) *tls.Config {
	trusted, err := os.ReadFile(ca)
	check(err)
	found := &tls.Config{RootCAs: x509.NewCertPool()}
	found.RootCAs.AppendCertsFromPEM(trusted)
	if certificate != "" {
		own, err := tls.LoadX509KeyPair(certificate, certificate)
		check(err)
		found.Certificates = []tls.Certificate{own}
	}
	return found
}

// Returns false behind the last record.
func read(client *kgo.Client, patience context.Context) bool {
	fetches := client.PollFetches(patience)
	for _, failed := range fetches.Errors() {
		check(failed.Err)
	}
	isOver := false
	fetches.EachRecord(func(found *kgo.Record) {
		shown := record{found.Offset, found.Timestamp.UnixMilli(), found.Key, found.Value, []header{}}
		for _, each := range found.Headers {
			shown.Headers = append(shown.Headers, header{each.Key, each.Value})
		}
		line, err := json.Marshal(shown)
		check(err)
		fmt.Println(string(line))
		isOver = isOver || string(found.Key) == "the end"
	})
	return !isOver
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
