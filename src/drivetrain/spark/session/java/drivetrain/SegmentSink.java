package drivetrain;

import java.io.IOException;
import java.io.Serializable;
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
 * Writes the rows of a batch as segments of a channel, without handing them to Python.
 *
 * <p>Each attempt of a task writes files under its own names, and describes them to Spark's driver, which takes
 * the descriptions of exactly one attempt for each partition. The files of the others are orphans that no log
 * entry names. The options are those of {@link SegmentWriter}, and `token`, under which the descriptions are
 * taken by {@link #take}.
 *
 * <p>It is compiled by Janino, which ignores type parameters: interfaces are therefore implemented raw.
 */
public class SegmentSink implements TableProvider {

  private static final ConcurrentHashMap WRITTEN = new ConcurrentHashMap();

  /** The descriptions of the job with that token, once: a line for each segment, in the order of partitions. */
  public static String take(String token) {
    return (String) WRITTEN.remove(token);
  }

  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return new StructType();
  }

  public boolean supportsExternalMetadata() {
    return true;
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new Segments();
  }

  /** What Spark sees of it: a table to which anything may be appended. */
  public static class Segments implements SupportsWrite {

    public String name() {
      return "segments";
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
      return new SegmentWrite(info);
    }
  }

  /** One job. */
  public static class SegmentWrite implements Write, BatchWrite {
    private final StructType schema;
    private final CaseInsensitiveStringMap options;

    public SegmentWrite(LogicalWriteInfo info) {
      this.schema = info.schema();
      this.options = info.options();
    }

    public BatchWrite toBatch() {
      return this;
    }

    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo of) {
      return new Factory(
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

  /** Makes the writer of each attempt. */
  public static class Factory implements DataWriterFactory {
    private final StructType schema;
    private final String folder;
    private final String stem;
    private final long segmentBytes;
    private final int batchRows;
    private final boolean durable;

    public Factory(
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

  /** The segments of one attempt: lines of name, rows, bytes, checksum, and smallest and largest timestamp. */
  public static class Description implements WriterCommitMessage {
    public final String lines;

    public Description(String lines) {
      this.lines = lines;
    }
  }
}
