import java.time.Instant;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.gearpump.DefaultMessage;
import org.apache.gearpump.Message;
import org.apache.gearpump.cluster.ClusterConfig;
import org.apache.gearpump.cluster.UserConfig;
import org.apache.gearpump.cluster.client.ClientContext;
import org.apache.gearpump.cluster.client.RunningApplication;
import org.apache.gearpump.cluster.embedded.EmbeddedCluster;
import org.apache.gearpump.streaming.javaapi.Graph;
import org.apache.gearpump.streaming.javaapi.Processor;
import org.apache.gearpump.streaming.javaapi.StreamApplication;
import org.apache.gearpump.streaming.javaapi.Task;
import org.apache.gearpump.streaming.partitioner.HashPartitioner;
import org.apache.gearpump.streaming.source.Watermark;
import org.apache.gearpump.streaming.task.TaskContext;

/**
 * The jobs in Apache Gearpump: its embedded cluster, in which messages pass between actors and are not
 * serialized, and a source and a counting task per core.
 *
 * <p>The tasks are those of its examples, SOL and word count in Java: a source emits a message, or the words of
 * a line, each time that it tells itself to go on. A stream of Gearpump has no end: a job is over when all
 * messages are counted, and the tasks then show their state.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
public final class GearpumpJob {
    private static final Map<String, Map<String, long[]>> STATES = new ConcurrentHashMap<>();
    /** How much each counting task has counted. */
    private static final List<AtomicLong> COUNTED = new CopyOnWriteArrayList<>();

    private GearpumpJob() {}

    /** Emits messages of 100 bytes that begin with their number, or the words of lines. */
    public static final class Source extends Task {
        private static final String PAYLOAD = "x".repeat(100);
        private final int step;
        private Iterator<String> lines;
        private long number;
        private long count;

        public Source(TaskContext context, UserConfig conf) {
            super(context, conf);
            number = context.taskId().index();
            step = context.parallelism();
            if (conf.getString("lines").isDefined()) {
                lines = Meter.lines(Meter.files(conf.getString("lines").get(), (int) number, step));
            } else {
                count = Long.parseLong(conf.getString("count").get());
            }
        }

        @Override
        public void onStart(Instant start) {
            goOn();
        }

        @Override
        public void onNext(Message message) {
            long now = System.currentTimeMillis();
            if (lines != null && lines.hasNext()) {
                for (String word : lines.next().split(" ")) {
                    context.output(new DefaultMessage(word, now));
                }
                goOn();
            } else if (number < count) {
                String head = Long.toString(number);
                context.output(new DefaultMessage(head.concat(PAYLOAD.substring(head.length())), now));
                number += step;
                goOn();
            }
        }

        private void goOn() {
            self().tell(new Watermark(Instant.now()), self());
        }
    }

    /** Counts by word; messages of SOL, whose bytes it sums up, by nothing. */
    public static final class Count extends Task {
        private final Map<String, long[]> state = new HashMap<>();
        private final AtomicLong counted = new AtomicLong();
        private final boolean keyed;
        private long count;
        private final long[] sums = new long[2];

        public Count(TaskContext context, UserConfig conf) {
            super(context, conf);
            keyed = conf.getString("lines").isDefined();
            COUNTED.add(counted);
            if (!keyed) {
                state.put("", sums);
            }
            STATES.put(context.appName() + context.taskId().index(), state);
        }

        @Override
        public void onNext(Message message) {
            String text = (String) message.value();
            if (keyed) {
                state.computeIfAbsent(text, word -> new long[2])[0]++;
            } else {
                sums[0]++;
                sums[1] += text.length();
            }
            counted.lazySet(++count);
        }
    }

    private static void run(ClientContext client, Map<String, String> job, String name) throws Exception {
        int cores = Integer.parseInt(job.get("cores"));
        COUNTED.clear();
        STATES.clear();
        Processor source = new Processor(Source.class).withParallelism(cores);
        Processor count = new Processor(Count.class).withParallelism(cores);
        Graph graph = new Graph();
        graph.addVertex(source);
        graph.addVertex(count);
        graph.addEdge(source, new HashPartitioner(), count);
        String input = job.containsKey("lines") ? "lines" : "count";
        UserConfig conf = UserConfig.empty().withString(input, job.get(input));
        RunningApplication running = client.submit(new StreamApplication(name, conf, graph));
        long units = Long.parseLong(job.get("units"));
        while (COUNTED.stream().mapToLong(AtomicLong::get).sum() < units) {
            Thread.sleep(20);
        }
        for (Map.Entry<String, Map<String, long[]>> state : STATES.entrySet()) {
            Stream<String> rows = state.getValue().entrySet().stream().map(GearpumpJob::row);
            Meter.write(job.get("out"), state.getKey() + ".csv", rows);
        }
        running.shutDown();
    }

    private static String row(Map.Entry<String, long[]> counted) {
        long[] sums = counted.getValue();
        return counted.getKey().isEmpty() ? sums[0] + "," + sums[1] : counted.getKey() + "," + sums[0];
    }

    public static void main(String[] arguments) {
        Meter.main(arguments, GearpumpJob::both);
    }

    private static void both(Map<String, String> warm, Map<String, String> job) throws Exception {
        org.apache.log4j.BasicConfigurator.configure();
        org.apache.log4j.Logger.getRootLogger().setLevel(org.apache.log4j.Level.ERROR);
        EmbeddedCluster cluster = new EmbeddedCluster(ClusterConfig.defaultConfig());
        cluster.start();
        ClientContext client = cluster.newClientContext();
        run(client, warm, "warm");
        Meter.measured(() -> run(client, job, "job"));
    }
}
