import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic into another one in transactions, each with the offsets that it has read up to. Every third transaction
 * is aborted and done again. A producer that was fenced, or has met an error for good, is replaced by a new one.
 *
 * Arguments: bootstrap, source, target, group, transactional id, number of records that the source has.
 */
public final class Transform {
    private static final Duration POLL = Duration.ofMillis(200);

    private final String[] words;
    private int transactions;

    private Transform(String[] words) {
        this.words = words;
    }

    public static void main(String[] words) {
        Transform transform = new Transform(words);
        while (true) {
            try {
                transform.copy();
                System.out.println("done");
                return;
            } catch (KafkaException failed) {
                System.err.println("begins again: " + failed);
            }
        }
    }

    private void copy() {
        try (KafkaProducer<byte[], byte[]> producer = producer(); KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            producer.initTransactions();
            consumer.subscribe(List.of(words[1]));
            while (committed(consumer) < Long.parseLong(words[5])) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                if (!records.isEmpty()) {
                    transact(producer, consumer, records);
                }
            }
        }
    }

    private void transact(
            KafkaProducer<byte[], byte[]> producer, KafkaConsumer<byte[], byte[]> consumer,
            ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            producer.send(new ProducerRecord<>(words[2], record.partition(), null, record.value()));
            offsets.put(
                new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        if (++transactions % 3 != 0) {
            producer.commitTransaction();
            return;
        }
        producer.flush();
        producer.abortTransaction();
        Map<TopicPartition, OffsetAndMetadata> before = consumer.committed(consumer.assignment());
        for (TopicPartition place : consumer.assignment()) {
            OffsetAndMetadata known = before.get(place);
            consumer.seek(place, known == null ? 0 : known.offset());
        }
    }

    private long committed(KafkaConsumer<byte[], byte[]> consumer) {
        long sum = 0;
        for (OffsetAndMetadata known : consumer.committed(consumer.assignment()).values()) {
            sum += known == null ? 0 : known.offset();
        }
        return sum;
    }

    private KafkaProducer<byte[], byte[]> producer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("transactional.id", words[4]);
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        settings.put("max.block.ms", "20000");
        settings.put("reconnect.backoff.max.ms", "200");
        return new KafkaProducer<>(settings);
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("group.id", words[3]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "20");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "2000");
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.put("default.api.timeout.ms", "20000");
        settings.put("reconnect.backoff.max.ms", "200");
        return new KafkaConsumer<>(settings);
    }
}
