package drivetrain;

import java.io.IOException;
import java.io.Serializable;
import java.nio.channels.ClosedByInterruptException;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Writes the rows of a batch as files, without handing them to Python: as segments of a channel, or as parts of a
 * Parquet file.
 *
 * <p>Each attempt of a task writes files under its own names, and describes them to Spark's driver, which takes
 * the descriptions of exactly one attempt for each partition. The files of the others are orphans that nobody
 * names. The options are those of {@link SegmentWriter}, or of {@link PartWriter} if there is a `codec`, and
 * `token`, under which the descriptions are taken by {@link #take}.
 *
 * <p>It is compiled by Janino, which ignores type parameters: interfaces are therefore implemented raw.
 */
public class BatchFiles implements TableProvider {

  /** The message of the error that says that Python must write this batch. */
  public static final String REFUSED = "drivetrain: files are not written by Java";

  private static final ConcurrentHashMap WRITTEN = new ConcurrentHashMap();

  /** The descriptions of the job with that token, once: a line for each file, in the order of partitions. */
  public static String take(String token) {
    return (String) WRITTEN.remove(token);
  }

  /** The error of a file that cannot be written; that of a task that is stopped stays as it is. */
  public static IOException refused(IOException error) {
    return error instanceof ClosedByInterruptException ? error : new IOException(REFUSED, error);
  }

  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return new StructType();
  }

  public boolean supportsExternalMetadata() {
    return true;
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new Files();
  }

  /** What Spark sees of it: a table to which anything may be appended. */
  public static class Files implements SupportsWrite {

    public String name() {
      return "files";
    }

    public StructType schema() {
      return new StructType();
    }

    public Set capabilities() {
      java.util.HashSet all = new java.util.HashSet();
      all.add(TableCapability.BATCH_WRITE);
      all.add(TableCapability.ACCEPT_ANY_SCHEMA);
      return all;
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new Builder(info);
    }
  }

  /** Makes the job. */
  public static class Builder implements WriteBuilder {
    private final LogicalWriteInfo info;

    public Builder(LogicalWriteInfo info) {
      this.info = info;
    }

    public Write build() {
      return new FilesWrite(info);
    }
  }

  /** One job. */
  public static class FilesWrite implements Write, BatchWrite {
    private final StructType schema;
    private final CaseInsensitiveStringMap options;

    public FilesWrite(LogicalWriteInfo info) {
      this.schema = info.schema();
      this.options = info.options();
    }

    public BatchWrite toBatch() {
      return this;
    }

    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo of) {
      if (options.containsKey("codec")) {
        return PartWriter.factory(schema, options);
      }
      return new SegmentFactory(
          schema,
          options.get("folder"),
          options.get("stem"),
          options.getLong("segmentBytes", 1L << 25),
          options.getInt("batchRows", 10000),
          options.getBoolean("durable", true));
    }

    public void commit(WriterCommitMessage[] messages) {
      StringBuilder all = new StringBuilder();
      for (int index = 0; index < messages.length; index++) {
        if (messages[index] != null) {
          all.append(((Description) messages[index]).lines);
        }
      }
      WRITTEN.put(options.get("token"), all.toString());
    }

    public void abort(WriterCommitMessage[] messages) {}
  }

  /** Makes the writer of segments of each attempt. */
  public static class SegmentFactory implements DataWriterFactory {
    private final StructType schema;
    private final String folder;
    private final String stem;
    private final long segmentBytes;
    private final int batchRows;
    private final boolean durable;

    public SegmentFactory(
        StructType schema, String folder, String stem, long segmentBytes, int batchRows, boolean durable) {
      this.schema = schema;
      this.folder = folder;
      this.stem = stem;
      this.segmentBytes = segmentBytes;
      this.batchRows = batchRows;
      this.durable = durable;
    }

    public DataWriter createWriter(int partition, long task) {
      return new SegmentWriter(schema, folder, stem, segmentBytes, batchRows, durable);
    }
  }

  /** The files of one attempt, a line for each. */
  public static class Description implements WriterCommitMessage {
    public final String lines;

    public Description(String lines) {
      this.lines = lines;
    }
  }
}
