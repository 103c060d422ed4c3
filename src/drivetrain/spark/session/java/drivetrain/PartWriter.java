package drivetrain;

import java.io.File;
import java.io.IOException;
import java.nio.file.Paths;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.hadoop.metadata.FileMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.io.InputFile;
import org.apache.parquet.io.LocalOutputFile;
import org.apache.parquet.io.OutputFile;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Writes the rows of one attempt of a task as one Parquet file, by Spark's own conversion of rows, and joins such
 * files.
 *
 * <p>The options are `folder`, `stem`: the beginning of the file's name, and `codec`: Parquet's name of a
 * compression. A description is a line of name, rows, and their size in memory; without rows there is no file. It
 * is not synced. A file that cannot be written is an error with the text {@link BatchFiles#REFUSED}: the caller has Python
 * write the batch, which reports what is wrong.
 */
public class PartWriter implements DataWriter {

  private static final long ROW_GROUP_BYTES = 64L << 20;

  private final SerializableConfiguration settings;
  private final String folder;
  private final String stem;
  private final CompressionCodecName codec;
  private File file;
  private ParquetWriter writer;
  private long rows;
  private long bytes;

  public PartWriter(
      SerializableConfiguration settings, String folder, String stem, CompressionCodecName codec) {
    this.settings = settings;
    this.folder = folder;
    this.stem = stem;
    this.codec = codec;
  }

  /** What makes the writer of each attempt. */
  public static DataWriterFactory factory(StructType schema, CaseInsensitiveStringMap options) {
    SparkSession session = SparkSession.active();
    Configuration settings;
    try {
      Job job = Job.getInstance(session.sessionState().newHadoopConf());
      new ParquetFileFormat()
          .prepareWrite(
              session, job, new scala.collection.immutable.Map.Map1("compression", "none"), schema);
      settings = job.getConfiguration();
    } catch (Exception error) {
      throw new RuntimeException(BatchFiles.REFUSED, error);
    }
    // Files of the driver, which Arrow writes, have these types.
    settings.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS");
    settings.set("spark.sql.parquet.writeLegacyFormat", "false");
    return new Factory(
        new SerializableConfiguration(settings),
        options.get("folder"),
        options.get("stem"),
        options.get("codec"));
  }

  public void write(Object record) throws IOException {
    InternalRow row = (InternalRow) record;
    try {
      if (writer == null) {
        file = new File(folder, stem + "-" + UUID.randomUUID().toString().replace("-", ""));
        writer =
            new Builder(new LocalOutputFile(Paths.get(file.getPath(), new String[0])))
                .withConf(settings.value())
                .withCompressionCodec(codec)
                .withRowGroupSize(ROW_GROUP_BYTES)
                .build();
      }
      writer.write(row);
    } catch (IOException error) {
      throw BatchFiles.refused(error);
    } catch (RuntimeException error) {
      throw new IOException(BatchFiles.REFUSED, error);
    }
    rows++;
    bytes += row instanceof UnsafeRow ? ((UnsafeRow) row).getSizeInBytes() : 8L * row.numFields();
  }

  public WriterCommitMessage commit() throws IOException {
    if (writer == null) {
      return new BatchFiles.Description("");
    }
    try {
      writer.close();
    } catch (IOException error) {
      throw BatchFiles.refused(error);
    }
    return new BatchFiles.Description(file.getName() + " " + rows + " " + bytes + "\n");
  }

  public void abort() {
    if (writer != null) {
      try {
        writer.close();
      } catch (IOException error) {
        // the attempt has failed already
      }
      file.delete();
    }
  }

  public void close() {}

  /** Join files with the same columns to a new one, byte by byte: their groups of rows stay as they are. */
  public static void join(String[] parts, String whole) throws IOException {
    Configuration settings = SparkSession.active().sparkContext().hadoopConfiguration();
    ParquetFileReader first = ParquetFileReader.open(read(parts[0], settings));
    FileMetaData described = first.getFooter().getFileMetaData();
    first.close();
    ParquetFileWriter writer =
        new ParquetFileWriter(
            new LocalOutputFile(Paths.get(whole, new String[0])),
            described.getSchema(),
            ParquetFileWriter.Mode.OVERWRITE,
            ROW_GROUP_BYTES,
            0);
    writer.start();
    for (int index = 0; index < parts.length; index++) {
      writer.appendFile(read(parts[index], settings));
    }
    writer.end(described.getKeyValueMetaData());
    writer.close();
  }

  /** A file that Hadoop reads: what Parquet has for local files reads byte by byte. */
  private static InputFile read(String path, Configuration settings) throws IOException {
    return HadoopInputFile.fromPath(new Path(new File(path).toURI()), settings);
  }

  /** Makes the writer of each attempt. */
  public static class Factory implements DataWriterFactory {
    private final SerializableConfiguration settings;
    private final String folder;
    private final String stem;
    private final String codec;

    public Factory(SerializableConfiguration settings, String folder, String stem, String codec) {
      this.settings = settings;
      this.folder = folder;
      this.stem = stem;
      this.codec = codec;
    }

    public DataWriter createWriter(int partition, long task) {
      return new PartWriter(settings, folder, stem, CompressionCodecName.valueOf(codec));
    }
  }

  /** A writer of rows as Spark has them. */
  public static class Builder extends ParquetWriter.Builder {
    public Builder(OutputFile file) {
      super(file);
    }

    protected ParquetWriter.Builder self() {
      return this;
    }

    protected WriteSupport getWriteSupport(Configuration settings) {
      return new ParquetWriteSupport();
    }
  }
}
