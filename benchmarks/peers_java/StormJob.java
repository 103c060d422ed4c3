import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * The jobs in Apache Storm: a LocalCluster with one worker, and a spout and a bolt of each kind per core.
 *
 * <p>As its page about performance says: no ackers (so a message may be lost, and none is repeated), and large
 * queues. Not its batches between bolts: with `topology.producer.batch.size` of 1,000 the last tuples of an input
 * stayed in a batch in every second run. Within one worker, tuples are not serialized. A topology never ends: it
 * is over when all messages are counted, and its bolts then show their state.
 */
public final class StormJob {
    private static final Map<Integer, Map<String, long[]>> STATES = new ConcurrentHashMap<>();
    /** How much each counting bolt has counted. */
    private static final List<AtomicLong> COUNTED = new CopyOnWriteArrayList<>();

    private StormJob() {}

    /** Emits lines of files, or messages of 100 bytes with numbers. */
    static final class Source extends BaseRichSpout {
        private static final String PAYLOAD = "x".repeat(100);
        private final Map<String, String> job;
        private SpoutOutputCollector collector;
        private Iterator<String> lines;
        private long number;
        private long count;
        private int step;

        Source(Map<String, String> job) {
            this.job = new HashMap<>(job);
        }

        @Override
        public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector given) {
            collector = given;
            step = context.getComponentTasks(context.getThisComponentId()).size();
            number = context.getThisTaskIndex();
            if (job.containsKey("lines")) {
                lines = Meter.lines(Meter.files(job.get("lines"), (int) number, step));
            } else {
                count = Long.parseLong(job.get("count"));
            }
        }

        @Override
        public void nextTuple() {
            if (lines != null) {
                if (lines.hasNext()) {
                    collector.emit(new Values(lines.next()));
                }
            } else if (number < count) {
                collector.emit(new Values(number, PAYLOAD));
                number += step;
            }
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(job.containsKey("lines") ? new Fields("line") : new Fields("id", "payload"));
        }
    }

    /** Splits lines into words. */
    static final class Split extends BaseRichBolt {
        private OutputCollector collector;

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector given) {
            collector = given;
        }

        @Override
        public void execute(Tuple tuple) {
            for (String word : tuple.getString(0).split(" ")) {
                collector.emit(new Values(word));
            }
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("word"));
        }
    }

    /** Parses events: the start of their window with their key, and their value. */
    static final class Parse extends BaseRichBolt {
        private transient EventReader reader;
        private OutputCollector collector;

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector given) {
            collector = given;
            reader = new EventReader();
        }

        @Override
        public void execute(Tuple tuple) {
            reader.read(tuple.getString(0));
            collector.emit(new Values(reader.window + "," + reader.key, reader.value));
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("key", "value"));
        }
    }

    /** Counts and sums by key; of SOL's messages by nothing. */
    static final class Count extends BaseRichBolt {
        private final boolean keyed;
        private Map<String, long[]> state;
        private AtomicLong counted;
        private long count;

        Count(boolean keyed) {
            this.keyed = keyed;
        }

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector given) {
            state = new HashMap<>();
            counted = new AtomicLong();
            COUNTED.add(counted);
            STATES.put(context.getThisTaskId(), state);
        }

        @Override
        public void execute(Tuple tuple) {
            long[] sums = state.computeIfAbsent(keyed ? tuple.getString(0) : "", key -> new long[2]);
            sums[0]++;
            if (tuple.size() > 1) {
                sums[1] += keyed ? tuple.getLong(1) : tuple.getString(1).length();
            }
            counted.lazySet(++count);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {}
    }

    private static Config config() {
        Config config = new Config();
        config.setNumWorkers(1);
        config.setNumAckers(0);
        config.put(Config.TOPOLOGY_EXECUTOR_RECEIVE_BUFFER_SIZE, 32_768);
        config.put(Config.TOPOLOGY_DISABLE_LOADAWARE_MESSAGING, true);
        config.put(Config.TOPOLOGY_EVENTLOGGER_EXECUTORS, 0);
        return config;
    }

    private static void run(LocalCluster cluster, Map<String, String> job, String name) throws Exception {
        if (job.get("job").equals("kafka")) {
            StormKafka.run(cluster, job, name, config());
            return;
        }
        long units = Long.parseLong(job.get("units"));
        int cores = Integer.parseInt(job.get("cores"));
        COUNTED.clear();
        STATES.clear();
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("source", new Source(job), cores);
        if (job.get("job").equals("wordcount")) {
            builder.setBolt("split", new Split(), cores).localOrShuffleGrouping("source");
            builder.setBolt("count", new Count(true), cores).fieldsGrouping("split", new Fields("word"));
        } else if (job.get("job").equals("windows")) {
            builder.setBolt("parse", new Parse(), cores).localOrShuffleGrouping("source");
            builder.setBolt("count", new Count(true), cores).fieldsGrouping("parse", new Fields("key"));
        } else {
            builder.setBolt("count", new Count(false), cores).fieldsGrouping("source", new Fields("id"));
        }
        LocalCluster.LocalTopology topology = cluster.submitTopology(name, config(), builder.createTopology());
        while (COUNTED.stream().mapToLong(AtomicLong::get).sum() < units) {
            Thread.sleep(20);
        }
        for (Map.Entry<Integer, Map<String, long[]>> state : List.copyOf(STATES.entrySet())) {
            Stream<String> rows = state.getValue().entrySet().stream().map(row -> row(job.get("job"), row));
            Meter.write(job.get("out"), state.getKey() + ".csv", rows);
        }
        topology.close();
    }

    private static String row(String job, Map.Entry<String, long[]> counted) {
        long[] sums = counted.getValue();
        String key = counted.getKey().isEmpty() ? "" : counted.getKey() + ",";
        return key + sums[0] + (job.equals("wordcount") ? "" : "," + sums[1]);
    }

    public static void main(String[] arguments) {
        Meter.main(arguments, StormJob::both);
    }

    private static void both(Map<String, String> warm, Map<String, String> job) throws Exception {
        System.setProperty("java.io.tmpdir", job.get("work"));
        Configurator.setRootLevel(Level.ERROR);
        // Looks for new topologies each second instead of every ten.
        Map<String, Object> daemons = Map.of("nimbus.monitor.freq.secs", 1, "supervisor.monitor.frequency.secs", 1);
        try (LocalCluster cluster = new LocalCluster.Builder().withDaemonConf(daemons).build()) {
            run(cluster, warm, "warm");
            Meter.measured(() -> run(cluster, job, "job"));
        }
    }
}
