import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * How a peer's process tells the benchmark when its job begins and ends: it prints a line and waits for an
 * answer, as meter.py does. And what the jobs share: their arguments, their files, their results.
 */
final class Meter {
    private static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in));
    private static final Pattern ARGUMENT = Pattern.compile("\"(\\w+)\":\\s*(?:\"([^\"]*)\"|(\\d+))");

    private Meter() {}

    /** What is done between `begin` and `end`. */
    interface Work {
        void run() throws Exception;
    }

    /** A job that is done twice in one process: on little data to warm up, and then in earnest. */
    interface Twice {
        void run(Map<String, String> warm, Map<String, String> job) throws Exception;
    }

    /** Does a job with the arguments of the command, and ends the process whatever threads are left. */
    static void main(String[] arguments, Twice twice) {
        int status = 1;
        try {
            Map<String, String> job = given(arguments[0]);
            job.put("out", job.get("work") + "/out");
            Map<String, String> warm = new HashMap<>(job);
            warm.put("out", job.get("work") + "/warm-out");
            job.keySet().stream()
                    .filter(key -> key.startsWith("warm_"))
                    .forEach(key -> warm.put(key.substring("warm_".length()), job.get(key)));
            twice.run(warm, job);
            status = 0;
        } catch (Exception error) {
            error.printStackTrace();
        } finally {
            System.exit(status);
        }
    }

    static void measured(Work work) throws Exception {
        tell("begin");
        work.run();
        tell("end");
    }

    private static void tell(String what) throws IOException {
        System.out.println("\n" + what);
        System.out.flush();
        ANSWERS.readLine();
    }

    /** A flat object of strings and whole numbers. */
    private static Map<String, String> given(String json) {
        Map<String, String> found = new HashMap<>();
        Matcher matcher = ARGUMENT.matcher(json);
        while (matcher.find()) {
            found.put(matcher.group(1), matcher.group(2) != null ? matcher.group(2) : matcher.group(3));
        }
        return found;
    }

    /** The files that the reader `index` of `readers` reads. */
    static List<Path> files(String directory, int index, int readers) {
        try (Stream<Path> all = Files.list(Path.of(directory))) {
            List<Path> sorted = all.sorted().collect(Collectors.toList());
            return java.util.stream.IntStream.range(0, sorted.size())
                    .filter(n -> n % readers == index)
                    .mapToObj(sorted::get)
                    .collect(Collectors.toList());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** The lines of these files, one after another. */
    static java.util.Iterator<String> lines(List<Path> files) {
        return files.stream().flatMap(Meter::linesOf).iterator();
    }

    private static Stream<String> linesOf(Path file) {
        try {
            return Files.lines(file);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Write rows of CSV to the file `name` of the directory. */
    static void write(String directory, String name, Stream<String> rows) {
        try {
            Files.createDirectories(Path.of(directory));
            Files.write(Path.of(directory, name), (Iterable<String>) rows::iterator);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
