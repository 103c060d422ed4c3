import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Window;

/**
 * The jobs in Kafka Streams, from a topic to a topic: a thread per core, state in RocksDB with changelog topics.
 *
 * <p>Its documentation's settings for throughput: a large cache before the state, large compressed batches of
 * the producer, optimized topologies; at least once, as by default, unless it is told how many milliseconds
 * an `exactly_once` transaction may last. A stream never ends: a job is over when all messages (of a join, all
 * pairs) are counted, and closing it then writes what the cache still holds.
 */
public final class KafkaStreamsJob {
    private static final Serde<String> TEXT = Serdes.String();
    /** The partitions are read side by side: the grace period is longer than the events last. */
    private static final Duration GRACE = Duration.ofDays(1);
    private static LongAdder counted;

    private KafkaStreamsJob() {}

    /** An event as it is read. */
    private static final class Event {
        long millis;
        String key;
        long value;
    }

    private static final Serde<Event> EVENTS = Serdes.serdeFrom(
            (topic, event) -> {
                throw new IllegalStateException("events are only read");
            },
            (topic, bytes) -> {
                EventReader reader = new EventReader();
                reader.read(new String(bytes, StandardCharsets.UTF_8));
                Event event = new Event();
                event.millis = reader.millis;
                event.key = reader.key;
                event.value = reader.value;
                return event;
            });

    /** The count and the sum of a window. */
    private static final Serde<long[]> SUMS = Serdes.serdeFrom(
            (topic, sums) -> ByteBuffer.allocate(16).putLong(sums[0]).putLong(sums[1]).array(),
            (topic, bytes) -> {
                ByteBuffer buffer = ByteBuffer.wrap(bytes);
                return new long[] {buffer.getLong(), buffer.getLong()};
            });

    private static void wordcount(StreamsBuilder builder, String in, String out) {
        builder.stream(in, Consumed.with(Serdes.ByteArray(), TEXT))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(TEXT, TEXT))
                .aggregate(() -> 0L, (word, same, count) -> countedOne(count + 1), Materialized.with(TEXT, Serdes.Long()))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(out, Produced.with(TEXT, TEXT));
    }

    private static void windows(StreamsBuilder builder, String in, String out) {
        TimeWindows tens = TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), GRACE);
        events(builder, in)
                .groupByKey(Grouped.with(TEXT, Serdes.Long()))
                .windowedBy(tens)
                .aggregate(
                        () -> new long[2],
                        (key, value, sums) -> countedOne(new long[] {sums[0] + 1, sums[1] + value}),
                        Materialized.with(TEXT, SUMS))
                .toStream()
                .map((window, sums) -> KeyValue.pair(window.window().start() + "," + window.key(), row(sums)))
                .to(out, Produced.with(TEXT, TEXT));
    }

    private static void sessions(StreamsBuilder builder, String in, String out, long gapMs) {
        SessionWindows gaps = SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(gapMs), GRACE);
        events(builder, in)
                .groupByKey(Grouped.with(TEXT, Serdes.Long()))
                .windowedBy(gaps)
                .aggregate(
                        () -> new long[2],
                        (key, value, sums) -> countedOne(new long[] {sums[0] + 1, sums[1] + value}),
                        (key, one, other) -> new long[] {one[0] + other[0], one[1] + other[1]},
                        Materialized.with(TEXT, SUMS))
                .toStream()
                .map((session, sums) -> KeyValue.pair(bounds(session.window(), gapMs) + session.key(), row(sums)))
                .to(out, Produced.with(TEXT, TEXT));
    }

    /** The start of a session, and its end, one gap after its last event. */
    private static String bounds(Window session, long gapMs) {
        return session.start() + "," + (session.end() + gapMs) + ",";
    }

    private static void join(StreamsBuilder builder, Map<String, String> job) {
        KStream<String, Long> payments = events(builder, job.get("payments_topic"));
        Duration within = Duration.ofMillis(Long.parseLong(job.get("within_ms")));
        events(builder, job.get("topic"))
                .join(
                        payments,
                        (order, amount, payment) -> countedOne(new long[] {amount, payment}),
                        JoinWindows.ofTimeDifferenceAndGrace(within, GRACE),
                        StreamJoined.with(TEXT, Serdes.Long(), Serdes.Long()))
                .map((order, pair) -> KeyValue.pair(Long.toString(pair[1]), order + "," + pair[0]))
                .to(job.get("out_topic"), Produced.with(TEXT, TEXT));
    }

    private static void kafka(StreamsBuilder builder, Map<String, String> job) {
        long below = Long.parseLong(job.get("below"));
        builder.stream(job.get("topic"), Consumed.with(Serdes.ByteArray(), EVENTS))
                .peek((key, event) -> counted.increment())
                .filter((key, event) -> event.value < below)
                .mapValues(event -> EventReader.json(event.key, event.value))
                .to(job.get("out_topic"), Produced.with(Serdes.ByteArray(), TEXT));
    }

    /** The events by key, with their own timestamps. */
    private static KStream<String, Long> events(StreamsBuilder builder, String in) {
        return builder.stream(in, Consumed.with(Serdes.ByteArray(), EVENTS)
                        .withTimestampExtractor((message, before) -> ((Event) message.value()).millis))
                .map((key, event) -> KeyValue.pair(event.key, event.value));
    }

    private static String row(long[] sums) {
        return sums[0] + "," + sums[1];
    }

    private static <T> T countedOne(T result) {
        counted.increment();
        return result;
    }

    private static void run(Map<String, String> job, String name) throws Exception {
        counted = new LongAdder();
        StreamsBuilder builder = new StreamsBuilder();
        switch (job.get("job")) {
            case "wordcount" -> wordcount(builder, job.get("topic"), job.get("out_topic"));
            case "windows" -> windows(builder, job.get("topic"), job.get("out_topic"));
            case "sessions" -> sessions(
                    builder, job.get("topic"), job.get("out_topic"), Long.parseLong(job.get("gap_ms")));
            case "join" -> join(builder, job);
            case "kafka" -> kafka(builder, job);
            default -> throw new IllegalArgumentException(job.get("job"));
        }
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, job.get("out_topic") + "-streams");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, job.get("bootstrap"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, job.get("work") + "/" + name);
        if (job.containsKey("exactly_once")) {
            settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
            settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, job.get("exactly_once"));
        }
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, job.get("cores"));
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 256L << 20);
        settings.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 100);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 256 << 10);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.BUFFER_MEMORY_CONFIG), 64L << 20);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 10_000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        long units = Long.parseLong(job.get("units"));
        try (KafkaStreams streams = new KafkaStreams(builder.build(settings), settings)) {
            streams.start();
            while (counted.sum() < units) {
                if (streams.state().hasCompletedShutdown()) {
                    throw new IllegalStateException("Kafka Streams ended after " + counted.sum());
                }
                Thread.sleep(20);
            }
        }
    }

    public static void main(String[] arguments) {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "error");
        Meter.main(arguments, (warm, job) -> {
            run(warm, "warm");
            Meter.measured(() -> run(job, "job"));
        });
    }
}
