import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java half of tests/support/drivers/java_driver.py: does with Kafka's Java client what lines over a socket ask for.
 *
 * A connection is a session with a thread of its own, and at most one group member. A request is a line of words between
 * tabs, bytes as base64, null as "-"; an answer is a line of JSON. `java Client HOST:PORT [NAME=VALUE]...` prints the port it listens at
 * and ends when its standard input does.
 */
public final class Client {
    private static final Duration PATIENCE = Duration.ofSeconds(15);

    /** What every client is set to besides: arguments NAME=VALUE. */
    private static final Map<String, Object> SECURITY = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        for (int at = 1; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            SECURITY.put(setting[0], setting[1]);
        }
        ServerSocket listening = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        Thread accepting = new Thread(() -> accept(listening, arguments[0]));
        accepting.setDaemon(true);
        accepting.start();
        System.out.println(listening.getLocalPort());
        while (System.in.read() >= 0) { }
        System.exit(0);
    }

    private static void accept(ServerSocket listening, String bootstrap) {
        while (true) {
            try {
                Socket socket = listening.accept();
                Thread serving = new Thread(() -> new Session(bootstrap).serve(socket));
                serving.setDaemon(true);
                serving.start();
            } catch (IOException gone) {
                return;
            }
        }
    }

    private static final class Session {
        private final String bootstrap;
        private KafkaConsumer<byte[], byte[]> member;
        private final List<Object> assignments = new ArrayList<>();

        Session(String bootstrap) {
            this.bootstrap = bootstrap;
        }

        void serve(Socket socket) {
            try (socket) {
                BufferedReader lines = new BufferedReader(
                    new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII), 1 << 16);
                PrintStream answers = new PrintStream(socket.getOutputStream(), false, StandardCharsets.UTF_8);
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    answers.print(Json.of(answer(line.split("\t", -1))) + "\n");
                    answers.flush();
                }
            } catch (IOException gone) {
                // the test is over
            }
        }

        private Object answer(String[] words) {
            try {
                return Map.of("answer", perform(words));
            } catch (ExecutionException failed) {
                return refusal(failed.getCause());
            } catch (Exception failed) {
                return refusal(failed);
            }
        }

        private static Object refusal(Throwable failed) {
            return Map.of("error", (int) Errors.forException(failed).code(), "text", failed.toString());
        }

        private Object perform(String[] words) throws Exception {
            switch (words[0]) {
                case "produce": return produce(words);
                case "read": return read(place(words), Long.parseLong(words[3]), Integer.parseInt(words[4]));
                case "bounds": return bounds(place(words));
                case "offset_at": return offsetAt(place(words), Long.parseLong(words[3]));
                case "join": return join(words);
                case "assign": return assign(words);
                case "take": return take(Long.parseLong(words[1]));
                case "seek": member.seek(assigned(), Long.parseLong(words[1])); return true;
                case "position": return member.position(assigned(), PATIENCE);
                case "poll": return poll(Long.parseLong(words[1]));
                case "commit": member.commitSync(PATIENCE); return true;
                case "leave": member.close(); return true;
                default:
            }
            Map<String, Object> settings = new HashMap<>(SECURITY);
            settings.putAll(Map.of(
                "bootstrap.servers", bootstrap, "default.api.timeout.ms", 15000, "request.timeout.ms", 15000));
            try (Admin admin = Admin.create(settings)) {
                return words[0].equals("calls") ? AdminCalls.results(admin, words[1], words[2]) : administer(admin, words);
            }
        }

        private Object produce(String[] words) throws Exception {
            Properties settings = new Properties();
            settings.putAll(SECURITY);
            settings.put("bootstrap.servers", bootstrap);
            settings.put("key.serializer", ByteArraySerializer.class);
            settings.put("value.serializer", ByteArraySerializer.class);
            settings.put("compression.type", words[3]);
            settings.put("acks", words[4]);
            settings.put("enable.idempotence", words[5]);
            settings.put("linger.ms", "20");
            settings.put("max.request.size", String.valueOf(1 << 21));
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
                for (int at = 6; at < words.length; ) {
                    long time = Long.parseLong(words[at]);
                    ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                        words[1], Integer.parseInt(words[2]), time, bytes(words[at + 1]), bytes(words[at + 2]));
                    int headers = Integer.parseInt(words[at + 3]);
                    at += 4;
                    for (int end = at + 2 * headers; at < end; at += 2) {
                        record.headers().add(words[at], bytes(words[at + 1]));
                    }
                    sent.add(producer.send(record));
                }
                producer.flush();
            }
            List<Object> offsets = new ArrayList<>();
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata told = future.get();
                if (told.hasOffset()) {
                    offsets.add(told.offset());
                }
            }
            return offsets;
        }

        private Object read(TopicPartition place, long offset, int count) {
            List<Object> found = new ArrayList<>();
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("auto.offset.reset", "none"))) {
                consumer.assign(List.of(place));
                consumer.seek(place, offset);
                while (found.size() < count && System.nanoTime() < deadline) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                        found.add(told(record));
                    }
                }
            }
            return found.subList(0, Math.min(count, found.size()));
        }

        private Object bounds(TopicPartition place) {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
                long first = consumer.beginningOffsets(List.of(place)).get(place);
                return List.of(first, consumer.endOffsets(List.of(place)).get(place));
            }
        }

        private Object offsetAt(TopicPartition place, long time) {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(place, time)).get(place);
                return found == null ? -1 : found.offset();
            }
        }

        private Object join(String[] words) {
            Map<String, Object> settings = new HashMap<>(Map.of(
                "group.id", words[1], "auto.offset.reset", "earliest", "metadata.max.age.ms", words[6],
                "group.protocol", words[7]));
            if (words[7].equals("classic")) {  // the other protocol has both from the broker
                settings.putAll(Map.of("session.timeout.ms", words[4], "heartbeat.interval.ms", words[5]));
            }
            if (!words[3].equals("-")) {
                settings.put("group.instance.id", words[3]);
            }
            member = consumer(settings);
            member.subscribe(List.of(words[2]), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) { }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    assignments.add(numbers(member.assignment()));
                }
            });
            return true;
        }

        private Object assign(String[] words) {
            member = consumer(Map.of("group.id", words[1], "auto.offset.reset", "earliest"), Integer.parseInt(words[3]));
            member.assign(List.of(new TopicPartition(words[2], 0)));
            return true;
        }

        private TopicPartition assigned() {
            return member.assignment().iterator().next();
        }

        private Object take(long millis) {
            List<Object> found = new ArrayList<>();
            member.poll(Duration.ofMillis(millis)).forEach(record -> found.add(told(record)));
            return found;
        }

        private Object poll(long millis) {
            List<Object> found = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofMillis(millis))) {
                found.add(List.of(record.partition(), record.offset()));
            }
            return Map.of("records", found, "assignments", new ArrayList<>(assignments));
        }

        private Object administer(Admin admin, String[] words) throws Exception {
            String name = words.length > 1 ? words[1] : "";
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
            switch (words[0]) {
                case "create_topic":
                    NewTopic wanted = new NewTopic(name, Integer.parseInt(words[2]), (short) 1);
                    admin.createTopics(List.of(wanted.configs(pairs(words, 3)))).all().get();
                    return true;
                case "delete_topic":
                    admin.deleteTopics(List.of(name)).all().get();
                    return true;
                case "grow_topic":
                    admin.createPartitions(Map.of(name, NewPartitions.increaseTo(Integer.parseInt(words[2])))).all().get();
                    return true;
                case "topics":
                    return topics(admin);
                case "topic_config":
                    return config(admin.describeConfigs(List.of(topic)).all().get().get(topic));
                case "alter_topic":
                    List<AlterConfigOp> changes = new ArrayList<>();
                    pairs(words, 2).forEach((key, value) ->
                        changes.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
                    admin.incrementalAlterConfigs(Map.of(topic, changes)).all().get();
                    return true;
                case "trim_topic":
                    RecordsToDelete before = RecordsToDelete.beforeOffset(Long.parseLong(words[3]));
                    admin.deleteRecords(Map.of(place(words), before)).all().get();
                    return true;
                case "cluster":
                    return cluster(admin.describeCluster());
                case "groups":
                    List<Object> ids = new ArrayList<>();
                    admin.listConsumerGroups().all().get().forEach(group -> ids.add(group.groupId()));
                    return ids;
                case "group":
                    return group(admin.describeConsumerGroups(List.of(name)).all().get().get(name));
                case "committed":
                    Map<String, Object> offsets = new TreeMap<>();
                    admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().forEach((place, told) -> {
                        if (place.topic().equals(words[2]) && told != null) {
                            offsets.put(String.valueOf(place.partition()), told.offset());
                        }
                    });
                    return offsets;
                case "delete_group":
                    admin.deleteConsumerGroups(List.of(name)).all().get();
                    return true;
                default:
                    throw new IllegalArgumentException(words[0]);
            }
        }

        private static Object topics(Admin admin) throws Exception {
            Collection<String> names = admin.listTopics(new ListTopicsOptions().listInternal(false)).names().get();
            Map<String, Object> counts = new TreeMap<>();
            for (TopicDescription each : admin.describeTopics(names).allTopicNames().get().values()) {
                counts.put(each.name(), each.partitions().size());
            }
            return counts;
        }

        private static Object config(Config config) {
            Map<String, Object> told = new TreeMap<>();
            config.entries().forEach(entry -> told.put(entry.name(), entry.value()));
            return told;
        }

        private static Object cluster(DescribeClusterResult told) throws Exception {
            Map<String, Object> brokers = new TreeMap<>();
            for (Node node : told.nodes().get()) {
                brokers.put(node.idString(), node.host() + ":" + node.port());
            }
            return Map.of("id", told.clusterId().get(), "controller", told.controller().get().id(), "brokers", brokers);
        }

        @SuppressWarnings("deprecation") // its replacement is not in the older client
        private static Object group(ConsumerGroupDescription told) {
            List<Object> owned = new ArrayList<>();
            told.members().forEach(each -> owned.add(numbers(each.assignment().topicPartitions())));
            return Map.of("state", told.state().toString(), "members", owned);
        }

        private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> further) {
            return consumer(further, 1 << 21);
        }

        private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> further, int fetchBytes) {
            Map<String, Object> settings = new HashMap<>(further);
            settings.putAll(SECURITY);
            settings.put("bootstrap.servers", bootstrap);
            settings.put("enable.auto.commit", "false");
            settings.put("max.partition.fetch.bytes", fetchBytes);
            return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        private static Object told(ConsumerRecord<byte[], byte[]> record) {
            List<Object> headers = new ArrayList<>();
            for (Header header : record.headers()) {
                headers.add(Arrays.asList(header.key(), header.value()));
            }
            return Arrays.asList(record.offset(), record.timestamp(), record.key(), record.value(), headers);
        }

        private static TopicPartition place(String[] words) {
            return new TopicPartition(words[1], Integer.parseInt(words[2]));
        }

        private static List<Object> numbers(Collection<TopicPartition> places) {
            List<Object> partitions = new ArrayList<>();
            places.forEach(place -> partitions.add(place.partition()));
            return partitions;
        }

        private static Map<String, String> pairs(String[] words, int from) {
            Map<String, String> found = new HashMap<>();
            for (int at = from; at + 1 < words.length; at += 2) {
                found.put(words[at], words[at + 1]);
            }
            return found;
        }

        private static byte[] bytes(String word) {
            return word.equals("-") ? null : Base64.getDecoder().decode(word);
        }
    }
}
