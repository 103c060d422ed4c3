package drivetrain;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.WritableByteChannel;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.util.UUID;
import java.util.zip.CRC32;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.compression.CompressionUtil;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowFileWriter;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/**
 * Writes the rows of one attempt of a task as segments: Arrow files, compressed, with a checksum of the bytes as
 * they are written.
 *
 * <p>A description is a line of name, rows, bytes, checksum, and smallest and largest timestamp. A file is synced
 * before it is described. Its rows are in record batches of at most `batchRows` rows or
 * {@link #BATCH_BYTES}, of which one is in memory; it is closed when it holds `segmentBytes`. A message without an
 * event time, and a file that cannot be written, are errors with the text {@link BatchFiles#REFUSED}: the caller has Python
 * write the batch, which reports what is wrong.
 */
public class SegmentWriter implements DataWriter {

  private static final long BATCH_BYTES = 4L << 20;

  private final StructType schema;
  private final String folder;
  private final String stem;
  private final long segmentBytes;
  private final int batchRows;
  private final boolean durable;
  private final int stamps;
  private final StringBuilder described = new StringBuilder();

  private BufferAllocator allocator;
  private VectorSchemaRoot root;
  private ArrowWriter rows;
  private int waitingRows;
  private long waitingBytes;

  private String name;
  private Checked file;
  private ArrowFileWriter writer;
  private long fileRows;
  private long fileBytes;
  private long lowest;
  private long highest;

  public SegmentWriter(
      StructType schema, String folder, String stem, long segmentBytes, int batchRows, boolean durable) {
    this.schema = schema;
    this.folder = folder;
    this.stem = stem;
    this.segmentBytes = segmentBytes;
    this.batchRows = batchRows > 0 ? batchRows : Integer.MAX_VALUE;
    this.durable = durable;
    this.stamps = schema.fieldIndex("__ts");
  }

  public void write(Object record) throws IOException {
    InternalRow row = (InternalRow) record;
    if (row.isNullAt(stamps)) {
      throw new IOException(BatchFiles.REFUSED + ": a message has no event time");
    }
    if (rows == null) {
      allocator = ArrowUtils.rootAllocator().newChildAllocator("segment", 0L, Long.MAX_VALUE);
      root = VectorSchemaRoot.create(ArrowUtils.toArrowSchema(schema, "UTC", true, false, false), allocator);
      rows = ArrowWriter.create(root);
    }
    long stamp = row.getLong(stamps);
    if (fileRows == 0 && waitingRows == 0) {
      lowest = highest = stamp;
    } else if (stamp < lowest) {
      lowest = stamp;
    } else if (stamp > highest) {
      highest = stamp;
    }
    rows.write(row);
    waitingRows++;
    waitingBytes = row instanceof UnsafeRow ? waitingBytes + ((UnsafeRow) row).getSizeInBytes() : rows.sizeInBytes();
    if (waitingRows >= batchRows || waitingBytes >= BATCH_BYTES) {
      writeBatch();
      if (fileBytes >= segmentBytes) {
        closeFile();
      }
    }
  }

  private void writeBatch() throws IOException {
    rows.finish();
    try {
      if (file == null) {
        name = stem + "-" + UUID.randomUUID().toString().replace("-", "") + ".arrow";
        file = new Checked(new File(folder, name));
        writer =
            new ArrowFileWriter(
                root,
                (DictionaryProvider) null,
                file,
                (java.util.Map) null,
                IpcOption.DEFAULT,
                new FastLz4.Codecs(),
                CompressionUtil.CodecType.LZ4_FRAME);
        writer.start();
      }
      writer.writeBatch();
    } catch (IOException error) {
      throw BatchFiles.refused(error);
    }
    fileRows += waitingRows;
    fileBytes += rows.sizeInBytes();
    waitingRows = 0;
    waitingBytes = 0;
    rows.reset();
  }

  private void closeFile() throws IOException {
    try {
      writer.end();
      file.finish(durable);
    } catch (IOException error) {
      throw BatchFiles.refused(error);
    }
    described.append(name).append(' ').append(fileRows).append(' ').append(file.position);
    described.append(' ').append(file.checksum.getValue());
    described.append(' ').append(Math.floorDiv(lowest, 1000L)).append(' ').append(Math.floorDiv(highest, 1000L));
    described.append('\n');
    file = null;
    writer = null;
    fileRows = 0;
    fileBytes = 0;
  }

  public WriterCommitMessage commit() throws IOException {
    if (waitingRows > 0) {
      writeBatch();
    }
    if (file != null) {
      closeFile();
    }
    return new BatchFiles.Description(described.toString());
  }

  public void abort() {
    if (file != null) {
      file.discard();
    }
  }

  public void close() {
    if (root != null) {
      root.close();
      allocator.close();
      root = null;
    }
  }

  /** A new file, with the checksum of what was written to it. */
  public static class Checked implements WritableByteChannel {
    public final CRC32 checksum = new CRC32();
    public long position;
    private final File path;
    private final FileChannel channel;

    public Checked(File path) throws IOException {
      this.path = path;
      this.channel =
          FileChannel.open(
              path.toPath(), new OpenOption[] {StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE});
    }

    public int write(ByteBuffer source) throws IOException {
      int size = source.remaining();
      checksum.update((ByteBuffer) source.duplicate()); // Janino takes the inherited type
      while (source.hasRemaining()) {
        channel.write(source);
      }
      position += size;
      return size;
    }

    public void finish(boolean durable) throws IOException {
      if (durable) {
        channel.force(true);
      }
      channel.close();
    }

    public void discard() {
      try {
        channel.close();
      } catch (IOException error) {
        // the attempt has failed already
      }
      path.delete();
    }

    public boolean isOpen() {
      return channel.isOpen();
    }

    public void close() {} // `finish` or `discard` does
  }
}
