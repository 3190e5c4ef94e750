package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	recordsAPoll = 20
	abortedEvery = 3
	poll         = 200 * time.Millisecond
	patience     = 20 * time.Second
	session      = 6 * time.Second
)

// Copies a topic into another one in transactions, each with the offsets that it has read up to. Every third transaction is
// aborted and done again. A session that was fenced, or has met an error for good, is replaced by a new one.
//
// franz transform ADDRESS SOURCE TARGET GROUP TRANSACTIONAL_ID TOTAL
func transform(words []string) {
	total, err := strconv.ParseInt(words[5], 10, 64)
	check(err)
	for {
		err := transformOnce(words, total)
		if err == nil {
			fmt.Println("done")
			return
		}
		fmt.Fprintln(os.Stderr, "begins again:", err)
		time.Sleep(poll)
	}
}

func transformOnce(words []string, total int64) error {
	transacting, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(words[0]), kgo.ConsumeTopics(words[1]), kgo.ConsumerGroup(words[3]), kgo.TransactionalID(words[4]),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.Balancers(kgo.RangeBalancer()), kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(session/3), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RetryTimeout(patience), kgo.RecordDeliveryTimeout(patience),
	)
	if err != nil {
		return err
	}
	defer transacting.Close()
	for transactions := 1; ; {
		waiting, cancel := context.WithTimeout(context.Background(), poll)
		fetches := transacting.PollRecords(waiting, recordsAPoll)
		cancel()
		if committed(transacting.Client()) >= total {
			return nil
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := transact(transacting, fetches, words[2], transactions%abortedEvery != 0); err != nil {
			return err
		}
		transactions++
	}
}

func transact(transacting *kgo.GroupTransactSession, fetches kgo.Fetches, target string, isCommit bool) error {
	if err := transacting.Begin(); err != nil {
		return err
	}
	fetches.EachRecord(func(found *kgo.Record) {
		copied := &kgo.Record{Topic: target, Partition: found.Partition, Value: found.Value}
		transacting.Produce(context.Background(), copied, nil)
	})
	ending, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := transacting.End(ending, kgo.TransactionEndTry(isCommit))
	return err
}

// Returns the sum of the offsets that the group has committed in the partitions of this member.
func committed(client *kgo.Client) int64 {
	sum := int64(0)
	for _, partitions := range client.CommittedOffsets() {
		for _, place := range partitions {
			sum += max(place.Offset, 0)
		}
	}
	return sum
}
