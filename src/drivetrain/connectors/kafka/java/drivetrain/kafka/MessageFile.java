package drivetrain.kafka;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;
import java.util.zip.CRC32;
import net.jpountz.lz4.LZ4FrameInputStream;
import org.apache.arrow.compression.Lz4CompressionCodec;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.compression.CompressionCodec;
import org.apache.arrow.vector.compression.CompressionUtil;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.arrow.vector.util.ByteArrayReadableSeekableByteChannel;
import org.apache.spark.sql.util.ArrowUtils;

/**
 * A segment, verified as a whole before a message of it is used, and read one record batch at a time.
 */
public class MessageFile {

  /** The file is missing, or not as it was written. */
  public static class Damaged extends IOException {
    public Damaged(String path) {
      super(path);
    }
  }

  private final BufferAllocator allocator;

  /** Its record batches; close this object, which closes the reader. */
  public final ArrowFileReader reader;

  public MessageFile(String path, long bytes, long crc32) throws IOException {
    byte[] content;
    try {
      content = Files.readAllBytes(Paths.get(path, new String[0]));
    } catch (NoSuchFileException error) {
      throw new Damaged(path);
    }
    CRC32 checksum = new CRC32();
    checksum.update(content, 0, content.length);
    if (content.length != bytes || checksum.getValue() != crc32) {
      throw new Damaged(path);
    }
    allocator = ArrowUtils.rootAllocator().newChildAllocator("messages", 0L, Long.MAX_VALUE);
    reader = new ArrowFileReader(new ByteArrayReadableSeekableByteChannel(content), allocator, new Codecs());
  }

  public void close() throws IOException {
    reader.close();
    allocator.close();
  }

  /** Makes the codec for a file. */
  public static class Codecs implements CompressionCodec.Factory {
    public CompressionCodec createCodec(CompressionUtil.CodecType type) {
      return type == CompressionUtil.CodecType.LZ4_FRAME ? new Lz4() : NoCompressionCodec.INSTANCE;
    }

    public CompressionCodec createCodec(CompressionUtil.CodecType type, int level) {
      return createCodec(type);
    }
  }

  /**
   * Reads frames of LZ4 by the library that Spark brings, if their blocks stand alone, as Java writes them. Python's
   * refer to the blocks before, which only Arrow's own codec takes: many times slower, but small batches are
   * all that Python writes after `drivetrain warm-up`.
   */
  public static class Lz4 extends Lz4CompressionCodec {
    private static final int LENGTH_BYTES = 8; // Arrow's own, before the frame
    private static final int FLAGS_AT = LENGTH_BYTES + 4; // behind the frame's magic number
    private static final int INDEPENDENT = 0x20;

    protected ArrowBuf doDecompress(BufferAllocator allocator, ArrowBuf packed) {
      if ((packed.getByte(FLAGS_AT) & INDEPENDENT) == 0) {
        return super.doDecompress(allocator, packed);
      }
      byte[] frame = new byte[(int) packed.writerIndex() - LENGTH_BYTES];
      packed.getBytes((long) LENGTH_BYTES, frame);
      byte[] made;
      try {
        made = new LZ4FrameInputStream(new ByteArrayInputStream(frame)).readAllBytes();
      } catch (IOException error) {
        throw new IllegalStateException("a file that was verified cannot be read", error);
      }
      ArrowBuf result = allocator.buffer((long) made.length);
      result.setBytes(0L, made);
      result.writerIndex((long) made.length);
      return result;
    }
  }
}
