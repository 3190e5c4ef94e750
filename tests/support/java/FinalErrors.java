import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a broker does not serve, used as a program would use it, for `java FinalErrors HOST:PORT TOPIC`: one line of JSON,
 * by name of the use the error's class, its text and the milliseconds that it took. Consumers without an error end after 10 s.
 */
public final class FinalErrors {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final int POLLS = 50;

    public static void main(String[] arguments) throws IOException {
        Map<String, Object> plain = Map.of("bootstrap.servers", arguments[0]);
        String topic = arguments[1];
        outcome(() -> describe(plain)); // loads the client's classes, which takes seconds on a busy machine
        Map<String, Object> outcomes = new TreeMap<>();
        outcomes.put("admin with SASL", outcome(() -> describe(sasl(plain))));
        outcomes.put("producer with SASL", outcome(() -> produce(sasl(plain), topic)));
        outcomes.put("share consumer", outcome(() -> share(plain, topic)));
        System.out.println("\n" + Json.of(outcomes)); // what the clients log goes there too, and ends without a line's end
        System.out.flush();
        System.in.read();
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> outcome(Callable<?> use) {
        long started = System.nanoTime();
        Throwable thrown = new IllegalStateException("no error");
        try {
            use.call();
        } catch (ExecutionException wrapped) {
            thrown = wrapped.getCause();
        } catch (Exception plain) {
            thrown = plain;
        }
        return Map.of("error", thrown.getClass().getSimpleName(), "text", String.valueOf(thrown.getMessage()),
            "ms", (System.nanoTime() - started) / 1_000_000);
    }

    private static Object share(Map<String, Object> plain, String topic) {
        Map<String, Object> settings = new TreeMap<>(plain);
        settings.put("group.id", "of-shares");
        try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            return repeat(consumer::poll);
        }
    }

    /** Polls as programs do, a part of a second each time: a share consumer says nothing of an error within a poll. */
    private static Object repeat(Function<Duration, ?> poll) {
        Object last = null;
        for (int turn = 0; turn < POLLS; turn++) {
            last = poll.apply(POLL);
        }
        return last;
    }

    private static Object produce(Map<String, Object> settings, String topic) throws Exception {
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            return producer.send(new ProducerRecord<>(topic, "value")).get();
        }
    }

    private static Object describe(Map<String, Object> settings) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            return admin.describeCluster().nodes().get();
        }
    }

    private static Map<String, Object> sasl(Map<String, Object> plain) {
        Map<String, Object> settings = new TreeMap<>(plain);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", "PLAIN");
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required "
            + "username=\"anybody\" password=\"anything\";");
        return settings;
    }
}
