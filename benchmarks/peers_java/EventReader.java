import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.time.Instant;

/** Reads the events of the jobs from their JSON, and writes it, with Jackson. */
final class EventReader {
    static final long WINDOW_MS = 10_000;
    private static final JsonFactory FACTORY = new JsonFactory();
    long millis;
    /** The start of the event's window in ms. */
    long window;
    String key;
    long value;

    /** What the job between topics makes of an event. */
    static String json(String key, long value) {
        StringWriter text = new StringWriter();
        try (JsonGenerator generator = FACTORY.createGenerator(text)) {
            generator.writeStartObject();
            generator.writeStringField("key", key);
            generator.writeNumberField("value", value);
            generator.writeEndObject();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return text.toString();
    }

    void read(String line) {
        try (JsonParser parser = FACTORY.createParser(line)) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                String name = parser.currentName();
                parser.nextToken();
                if (name.equals("ts")) {
                    millis = Instant.parse(parser.getText()).toEpochMilli();
                } else if (name.equals("key")) {
                    key = parser.getText();
                } else {
                    value = parser.getLongValue();
                }
            }
            window = millis - millis % WINDOW_MS;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
