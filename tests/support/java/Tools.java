import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after another in one virtual machine, since starting one takes longer than the tool.
 *
 * `java Tools JAR...`: the jars that hold the tools, whose classes are loaded anew for each run because they keep counts in
 * static fields. A line of standard input is a run: main class, standard input and arguments, percent-encoded between tabs;
 * a line of standard output is what came of it, as JSON.
 */
public final class Tools {
    private static volatile CompletableFuture<Integer> running;

    public static void main(String[] jars) throws IOException {
        PrintStream answers = System.out;
        BufferedReader runs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> stay(status));
        Exit.setHaltProcedure((status, message) -> stay(status));
        for (String line = runs.readLine(); line != null; line = runs.readLine()) {
            String[] words = line.split("\t", -1);
            for (int at = 0; at < words.length; at++) {
                words[at] = URLDecoder.decode(words[at], StandardCharsets.UTF_8);
            }
            answers.println(Json.of(run(jars, words[0], words[1], Arrays.copyOfRange(words, 2, words.length))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> run(String[] jars, String tool, String input, String[] arguments) throws IOException {
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        ByteArrayOutputStream told = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(told, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        int status;
        try (URLClassLoader fresh = new URLClassLoader(urls(jars), Tools.class.getClassLoader())) {
            status = status(fresh, tool, arguments);
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
        }
        return Map.of("status", status, "out", told.toString(StandardCharsets.UTF_8),
            "err", complained.toString(StandardCharsets.UTF_8));
    }

    /** In a thread of its own, which stays where the tool ends the process: an exception would be caught and printed. */
    private static int status(ClassLoader classes, String tool, String[] arguments) {
        running = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                classes.loadClass(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
                running.complete(0);
            } catch (InvocationTargetException thrown) {
                thrown.getCause().printStackTrace();
                running.complete(1);
            } catch (ReflectiveOperationException missing) {
                running.completeExceptionally(missing);
            }
        });
        thread.setDaemon(true);
        thread.setContextClassLoader(classes);
        thread.start();
        return running.join();
    }

    private static void stay(int status) {
        running.complete(status);
        while (true) {
            LockSupport.park();
        }
    }

    private static URL[] urls(String[] jars) throws MalformedURLException {
        URL[] found = new URL[jars.length];
        for (int at = 0; at < jars.length; at++) {
            found[at] = Path.of(jars[at]).toUri().toURL();
        }
        return found;
    }
}
