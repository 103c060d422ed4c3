import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.kafka.bolt.KafkaBolt;
import org.apache.storm.kafka.bolt.mapper.FieldNameBasedTupleToKafkaMapper;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * The job between two topics in Storm, with its spout and its bolt for Kafka, at least once: ackers follow each
 * tuple until the broker has its result. It is over when the topic has as many messages as there must be.
 */
final class StormKafka {
    private static final int PENDING = 10_000;

    private StormKafka() {}

    /** Passes on the events whose value is below a bound, without their time. */
    static final class Filter extends BaseRichBolt {
        private final long below;
        private transient EventReader reader;
        private OutputCollector collector;

        Filter(long below) {
            this.below = below;
        }

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector given) {
            collector = given;
            reader = new EventReader();
        }

        @Override
        public void execute(Tuple tuple) {
            reader.read(tuple.getStringByField("value"));
            if (reader.value < below) {
                collector.emit(tuple, new Values(null, EventReader.json(reader.key, reader.value)));
            }
            collector.ack(tuple);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("key", "message"));
        }
    }

    static void run(LocalCluster cluster, Map<String, String> job, String name, Config config) throws Exception {
        int cores = Integer.parseInt(job.get("cores"));
        config.setNumAckers(cores);
        config.setMaxSpoutPending(PENDING);
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("source", new KafkaSpout<>(reading(job)), cores);
        Filter filter = new Filter(Long.parseLong(job.get("below")));
        builder.setBolt("filter", filter, cores).localOrShuffleGrouping("source");
        KafkaBolt<String, String> sink = new KafkaBolt<String, String>()
                .withProducerProperties(sending(job))
                .withTopicSelector(job.get("out_topic"))
                .withTupleToKafkaMapper(new FieldNameBasedTupleToKafkaMapper<>("key", "message"));
        builder.setBolt("sink", sink, cores).localOrShuffleGrouping("filter");
        long results = Long.parseLong(job.get("results"));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", job.get("bootstrap")));
                LocalCluster.LocalTopology topology = cluster.submitTopology(name, config, builder.createTopology())) {
            while (messages(admin, job.get("out_topic")) < results) {
                Thread.sleep(100);
            }
        }
    }

    private static KafkaSpoutConfig<String, String> reading(Map<String, String> job) {
        return KafkaSpoutConfig.builder(job.get("bootstrap"), job.get("topic"))
                .setProp(ConsumerConfig.GROUP_ID_CONFIG, job.get("out_topic"))
                .setProp(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, PENDING)
                .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.EARLIEST)
                .build();
    }

    private static Properties sending(Map<String, String> job) {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, job.get("bootstrap"));
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class.getName());
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class.getName());
        settings.put(ProducerConfig.LINGER_MS_CONFIG, "100");
        settings.put(ProducerConfig.BATCH_SIZE_CONFIG, Integer.toString(256 << 10));
        settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "lz4");
        return settings;
    }

    private static long messages(Admin admin, String topic) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        admin.describeTopics(java.util.List.of(topic)).allTopicNames().get().get(topic).partitions()
                .forEach(one -> asked.put(new TopicPartition(topic, one.partition()), OffsetSpec.latest()));
        return admin.listOffsets(asked).all().get().values().stream().mapToLong(end -> end.offset()).sum();
    }
}
