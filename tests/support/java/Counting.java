import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * A Kafka Streams application that counts the words of a topic in two stores with changelogs: of all times, and by windows
 * of time, whose changelog is compacted and deleted.
 *
 * `java Counting HOST:PORT APPLICATION TOPIC STATE_DIRECTORY GUARANTEE` answers each line with a line of JSON: its state, its
 * counts while it runs, and how many records it restored from the changelog. It ends when its standard input does.
 */
public final class Counting {
    private static final AtomicLong restored = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> words = builder
            .stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()));
        words.count(Materialized.as("counts"));
        words.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofHours(6))).count(Materialized.as("windowed"));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(arguments));
        streams.setGlobalStateRestoreListener(new Restoring());
        streams.setUncaughtExceptionHandler(failed -> StreamThreadExceptionResponse.REPLACE_THREAD);
        streams.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            Thread.sleep(20); // whoever waits for a count asks again and again
            System.out.println(Json.of(shown(streams)));
        }
        CloseOptions leaving = CloseOptions.timeout(Duration.ofSeconds(20))
            .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP); // the next start waits for none
        System.exit(streams.close(leaving) ? 0 : 1);
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[3]);
        settings.put("processing.guarantee", arguments[4]);
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0"); // each count goes to the changelog
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("auto.offset.reset", "earliest");
        settings.put("topic.segment.bytes", "1048576");
        settings.put("topic.min.cleanable.dirty.ratio", "1.0"); // the test has it cleaned
        return settings;
    }

    private static Object shown(KafkaStreams streams) {
        Map<String, Object> counts = new TreeMap<>();
        String state = streams.state().toString();
        if (state.equals("RUNNING")) {
            var store = streams.store(StoreQueryParameters.fromNameAndType(
                "counts", QueryableStoreTypes.<String, Long>keyValueStore()));
            try (KeyValueIterator<String, Long> found = store.all()) {
                found.forEachRemaining(each -> counts.put(each.key, each.value));
            }
        }
        return Map.of("state", state, "counts", counts, "windowed", windowed(streams, state), "restored", restored.get());
    }

    /** The counts of all windows together. */
    private static Map<String, Object> windowed(KafkaStreams streams, String state) {
        Map<String, Object> counts = new TreeMap<>();
        if (state.equals("RUNNING")) {
            var store = streams.store(StoreQueryParameters.fromNameAndType(
                "windowed", QueryableStoreTypes.<String, Long>windowStore()));
            try (KeyValueIterator<Windowed<String>, Long> found = store.all()) {
                found.forEachRemaining(each ->
                    counts.merge(each.key.key(), each.value, (before, more) -> (Long) before + (Long) more));
            }
        }
        return counts;
    }

    private static final class Restoring implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition place, String store, long first, long end) { }

        @Override
        public void onBatchRestored(TopicPartition place, String store, long last, long count) { }

        @Override
        public void onRestoreEnd(TopicPartition place, String store, long count) {
            restored.addAndGet(count);
        }
    }
}
